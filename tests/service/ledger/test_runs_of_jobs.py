"""Runs of a job: how they are counted, and that only the current one may offer its results to other requests."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

import pytest

from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from service.ledger.contract import Connections, Transaction
from tests.service.ledger.test_contract import Connect, find, insert, job


def shares(ledger: Connections, one: Job) -> bool:
    return ledger.write(partial(jobs_table.share, job_id=one.id, owner=one.owner, attempts=one.attempts))


def test_a_run_shares_its_results_until_another_process_has_the_job(ledger: Connections) -> None:
    insert(ledger, job())
    assert shares(ledger, job())
    (taken_over,) = ledger.write(partial(jobs_table.inherit, dead_owner="me", new_owner="successor"))
    assert not shares(ledger, job())
    assert shares(ledger, taken_over)


@pytest.mark.parametrize(("status", "kept"), [("succeeded", True), ("failed", False), ("cancelled", False)])
def test_the_results_of_a_job_that_has_ended_stay_if_it_succeeded(ledger: Connections, status: str, kept: bool) -> None:
    insert(ledger, job())
    ended = job(status=status, finished_at=2.0)
    assert ledger.write(partial(jobs_table.finish, job=ended))
    assert shares(ledger, job()) is kept
    found = find(ledger, job())
    assert found is not None
    assert found.status == status


def test_a_run_shares_nothing_of_a_job_that_succeeded_with_the_results_of_another_run(ledger: Connections) -> None:
    insert(ledger, job())
    (taken_over,) = ledger.write(partial(jobs_table.inherit, dead_owner="me", new_owner="successor"))
    assert ledger.write(partial(jobs_table.finish, job=replace(taken_over, status="succeeded", finished_at=2.0)))
    assert not shares(ledger, job())
    assert shares(ledger, taken_over)


def test_no_process_takes_a_job_over_while_its_run_shares_its_results(connect: Connect) -> None:
    here, there = connect(), connect()
    insert(here, job())
    inherit = partial(jobs_table.inherit, dead_owner="me", new_owner="successor")

    with ThreadPoolExecutor(1) as another:

        def share(ledger: Transaction) -> Future[list[Job]]:
            assert jobs_table.share(ledger, job().id, "me", 1)
            taking = another.submit(there.write, inherit)
            wait([taking], 0.3)
            assert not taking.done()
            return taking

        assert here.write(share).result() == [job(owner="successor", attempts=2, shared_runs=frozenset({1}))]


def test_the_runs_that_have_shared_their_results_are_known_for_good(ledger: Connections) -> None:
    insert(ledger, job())
    assert shares(ledger, job())
    (second,) = ledger.write(partial(jobs_table.inherit, dead_owner="me", new_owner="successor"))
    (third,) = ledger.write(partial(jobs_table.inherit, dead_owner="successor", new_owner="last"))
    assert shares(ledger, third)
    cancelled = ledger.write(partial(jobs_table.finish, job=replace(third, status="cancelled", finished_at=2.0)))
    assert cancelled is not None
    assert [sorted(one.shared_runs) for one in (second, third, cancelled)] == [[1], [1], [1, 3]]


def test_a_run_whose_begin_is_recorded_late_does_not_reopen_the_job(ledger: Connections) -> None:
    insert(ledger, job())
    ended = job(status="cancelled", finished_at=2.0)
    assert ledger.write(partial(jobs_table.finish, job=ended))
    ledger.write(partial(jobs_table.begin, job_id=job().id))
    assert find(ledger, job()) == ended


def test_a_run_that_is_given_back_twice_counts_as_given_back_once(ledger: Connections) -> None:
    """A process repeats the transaction if the answer to its commit was lost."""
    insert(ledger, job())
    for _ in range(2):
        ledger.write(partial(jobs_table.give_back, job_ids=[job().id], owner="me", to="me"))
    assert find(ledger, job()) == job(given_back=1)
