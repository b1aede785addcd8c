"""Who may give a job's result to other requests: its run, until another run begins."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

import pytest

from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from service.ledger.contract import Connections, Transaction
from service.repeats import cache_table
from tests.service.ledger.test_contract import ONE, TWO, Connect, find, insert, job


def holds(ledger: Connections, one: Job) -> bool:
    return ledger.write(partial(jobs_table.holds, job_id=one.id, owner=one.owner, attempts=one.attempts))


def test_a_run_holds_its_job_until_another_process_has_it(ledger: Connections) -> None:
    insert(ledger, job())
    assert holds(ledger, job())
    (heirs,) = ledger.write(partial(jobs_table.inherit, dead="me", heir="heir"))
    assert not holds(ledger, job())
    assert holds(ledger, heirs)


@pytest.mark.parametrize(("status", "kept"), [("succeeded", True), ("failed", False), ("cancelled", False)])
def test_the_results_of_a_job_that_has_ended_stay_if_it_succeeded(ledger: Connections, status: str, kept: bool) -> None:
    insert(ledger, job())
    ended = job(status=status, finished_at=2.0)
    assert ledger.write(partial(jobs_table.finish, job=ended))
    assert holds(ledger, job()) is kept
    found = find(ledger, job())
    assert found is not None
    assert found.status == status


def test_no_process_takes_a_job_over_while_its_run_holds_it(connect: Connect) -> None:
    here, there = connect(), connect()
    insert(here, job())
    inherit = partial(jobs_table.inherit, dead="me", heir="heir")

    with ThreadPoolExecutor(1) as another:

        def hold(ledger: Transaction) -> Future[list[Job]]:
            assert jobs_table.holds(ledger, job().id, "me", 1)
            taking = another.submit(there.write, inherit)
            wait([taking], 0.3)
            assert not taking.done()
            return taking

        assert here.write(hold).result() == [job(owner="heir", attempts=2)]


def test_the_cache_tells_whether_it_has_a_result(ledger: Connections) -> None:
    about = f'{{"result_ids": ["{ONE}"], "100%": 1}}'
    ledger.write(partial(cache_table.insert_result, fingerprint="a", about=about, now=1.0))
    assert [ledger.read(partial(cache_table.has_result, result_id=one)) for one in (ONE, TWO)] == [True, False]
