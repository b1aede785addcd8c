"""The contract of ledgers, with the tables of all rooms: on an SQLite file and on a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from service.core.errors import NotReady
from service.core.schemas import WebhookReply
from service.jobs import jobs_table, webhook_table
from service.jobs.jobs_table import Job
from service.ledger.contract import Connections, Transaction
from service.repeats import cache_table, idempotency_table
from service.repeats.idempotency_table import Claim
from service.saving import index_table
from service.saving.index_table import row_of

ONE, TWO = "1" * 32, "2" * 32
Connect = Callable[[], Connections]


def job(number: int = 1, **fields: Any) -> Job:
    return replace(Job(f"{number:032x}", "queued", "me", float(number), {"a": [1.5, "ü"]}), **fields)


def insert(ledger: Connections, one: Job, most: int = 10) -> Job | None:
    return ledger.write(partial(jobs_table.insert, job=one, max_unfinished=most))


def claims(ledger: Connections, one: Claim, now: float = 1.0, instead_of: Claim | None = None) -> bool:
    return ledger.write(partial(idempotency_table.claim, wanted=one, now=now, instead_of=instead_of)) is not None


def find(ledger: Connections, one: Job) -> Job | None:
    return ledger.read(partial(jobs_table.find, job_id=one.id))


def test_writes_are_visible_to_other_processes_at_once(connect: Connect) -> None:
    here, there = connect(), connect()
    assert insert(here, job()) == job()
    assert find(there, job()) == job()


def test_connections_for_long_reads_see_the_same_ledger(ledger: Connections) -> None:
    insert(ledger, job())
    separate = ledger.separate()
    separate.open()
    assert find(separate, job()) == job()
    separate.close()
    assert find(ledger, job()) == job()


def test_a_transaction_that_fails_leaves_nothing_and_the_next_one_runs(ledger: Connections) -> None:
    def half(transaction: Transaction) -> None:
        jobs_table.insert(transaction, job(), 10)
        transaction.execute("INSERT INTO nowhere VALUES (1)")

    def broken(transaction: Transaction) -> None:
        jobs_table.insert(transaction, job(), 10)
        raise RuntimeError("a bug")

    with pytest.raises(NotReady) as refused:
        ledger.write(half)
    assert refused.value.code == "ledger_unavailable"
    with pytest.raises(RuntimeError, match="a bug"):
        ledger.write(broken)
    with pytest.raises(NotReady):
        ledger.read(lambda transaction: transaction.execute("SELECT * FROM nowhere").fetchone())
    assert find(ledger, job()) is None
    assert insert(ledger, job()) == job()


def test_a_job_exists_once_and_unfinished_jobs_are_limited(ledger: Connections) -> None:
    assert insert(ledger, job(1), 2) == job(1)
    assert insert(ledger, job(1, owner="another"), 2) == job(1)
    assert insert(ledger, job(2), 2) == job(2)
    assert insert(ledger, job(3), 2) is None
    assert ledger.read(jobs_table.unfinished) == {job(1).id, job(2).id}


def test_repeats_of_a_keyed_request_are_one_job(ledger: Connections) -> None:
    def insert_keyed(one: Job, key: str) -> Job | None:
        return ledger.write(partial(jobs_table.insert, job=one, max_unfinished=2, request_key=key))

    assert insert_keyed(job(1), "key") == job(1)
    assert insert_keyed(job(2), "key") == job(1)
    assert insert_keyed(job(3), "other") == job(3)
    assert insert_keyed(job(4), "key") == job(1), "however many jobs there are"
    ended = job(1, status="failed", finished_at=5.0)
    ledger.write(partial(jobs_table.finish, job=ended))
    assert insert_keyed(job(4), "key") == ended
    ledger.write(partial(jobs_table.forget, finished_before=5.0))
    assert insert_keyed(job(4), "key") == job(4)
    assert ledger.read(jobs_table.unfinished) == {job(3).id, job(4).id}


def test_concurrent_inserts_of_one_request_insert_one_job(connect: Connect) -> None:
    processes = [connect() for _ in range(4)]
    start = threading.Barrier(len(processes))

    def enter(number: int) -> list[str]:
        entered = []
        for key in range(50):
            one = job(100 * number + key)
            start.wait()
            found = processes[number].write(
                partial(jobs_table.insert, job=one, max_unfinished=1000, request_key=f"key{key}")
            )
            assert found is not None
            entered.append(found.id)
        return entered

    with ThreadPoolExecutor(len(processes)) as threads:
        found = list(threads.map(enter, range(len(processes))))
    assert found == [found[0]] * len(processes)
    assert processes[0].read(jobs_table.unfinished) == set(found[0])


def test_jobs_of_a_process_are_found_by_age(ledger: Connections) -> None:
    for one in (job(1), job(2), job(3, owner="another"), job(9)):
        insert(ledger, one)
    ledger.write(partial(jobs_table.finish, job=job(2, status="failed", finished_at=3.0)))
    assert ledger.read(partial(jobs_table.inserted_before, owner="me", moment=9.0)) == {job(1).id}


def test_a_job_ends_once_and_is_forgotten_with_its_webhook(ledger: Connections) -> None:
    insert(ledger, job())
    ledger.write(partial(jobs_table.begin, job_id=job().id))
    assert find(ledger, job()) == job(status="running")
    ended = job(status="failed", finished_at=5.0, problem={"code": "x"}, result_urls=["/a"])
    assert not ledger.write(partial(jobs_table.finish, job=replace(ended, owner="another")))
    assert ledger.read(partial(jobs_table.lost_among, job_ids=[job().id], owner="me")) == set()
    assert ledger.read(partial(jobs_table.lost_among, job_ids=[job().id], owner="another")) == {job().id}
    assert ledger.write(partial(jobs_table.finish, job=ended))
    assert not ledger.write(partial(jobs_table.finish, job=replace(ended, status="cancelled")))
    state = WebhookReply(state="pending", tries=1, reason="late")
    for tries in (1, 2):
        updated = state.model_copy(update={"tries": tries})
        ledger.write(partial(webhook_table.set_state, job_id=job().id, webhook=updated))
    assert find(ledger, job()) == replace(ended, webhook=state.model_copy(update={"tries": 2}))
    assert ledger.read(partial(jobs_table.lost_among, job_ids=[job().id, job(2).id], owner="me")) == {
        job().id,
        job(2).id,
    }
    assert ledger.read(partial(jobs_table.lost_among, job_ids=[], owner="me")) == set()
    assert ledger.read(partial(jobs_table.find, job_id=job().id, finished_after=5.0)) is None
    ledger.write(partial(jobs_table.forget, finished_before=5.0))
    assert find(ledger, job()) is None
    assert ledger.read(partial(webhook_table.find_state, job_id=job().id)) is None


def test_the_time_since_which_a_ledger_records_jobs_is_set_once(ledger: Connections) -> None:
    assert ledger.read(jobs_table.known_since) is None
    for moment in (5.0, 7.0):
        assert ledger.write(partial(jobs_table.set_known_since, moment=moment)) == 5.0
    assert ledger.read(jobs_table.known_since) == 5.0


def test_jobs_of_a_dead_process_are_inherited_oldest_first(ledger: Connections) -> None:
    for number in (3, 1, 2):
        insert(ledger, job(number, owner="dead"))
    ledger.write(partial(jobs_table.give_back, job_ids=[job(2).id], owner="dead", to="dead"))
    assert ledger.read(jobs_table.owners) == ["dead"]
    jobs = ledger.write(partial(jobs_table.inherit, dead_owner="dead", new_owner="me"))
    assert jobs == [job(1, attempts=2), job(2, attempts=2, given_back=1), job(3, attempts=2)]


def test_concurrent_claims_of_a_key_succeed_once(connect: Connect) -> None:
    processes = [connect() for _ in range(4)]
    start = threading.Barrier(len(processes))

    def claim(process: Connections, owner: str) -> list[int]:
        won = []
        for key in range(50):
            start.wait()
            if claims(process, Claim(f"key{key}", "print", owner, 100.0)):
                won.append(key)
        return won

    with ThreadPoolExecutor(len(processes)) as threads:
        won = list(threads.map(claim, processes, "abcd"))
    assert sorted(key for keys in won for key in keys) == list(range(50))


def test_a_key_of_a_dead_process_is_claimed_again_and_an_answered_one_is_not(ledger: Connections) -> None:
    mine, other = Claim("key", "print", "me", 100.0), Claim("key", "print", "other", 100.0)
    assert claims(ledger, mine)
    assert not claims(ledger, other, instead_of=replace(mine, owner="somebody else"))
    assert claims(ledger, other, instead_of=mine)
    assert not ledger.write(partial(idempotency_table.mark_answered, claimed=mine)), "it was claimed instead"
    assert ledger.write(partial(idempotency_table.mark_answered, claimed=other))
    assert not claims(ledger, mine, instead_of=other)
    assert ledger.read(partial(idempotency_table.find, name="key", now=1.0)) == replace(other, done=True)
    for _ in range(2):
        ledger.write(partial(idempotency_table.contain, claimed=other, result_ids=[ONE, TWO]))
    assert ledger.read(partial(idempotency_table.containing, result_id=TWO)) == [replace(other, done=True)]
    assert ledger.read(partial(idempotency_table.find, name="key", now=100.0)) is None
    assert ledger.write(partial(idempotency_table.delete_expired, now=100.0)) == [replace(other, done=True)]
    assert ledger.read(partial(idempotency_table.containing, result_id=TWO)) == []
    assert claims(ledger, mine, now=100.0)
    ledger.write(partial(idempotency_table.release, claimed=mine))
    assert claims(ledger, other, now=100.0)


def test_a_claim_returns_the_claims_that_it_replaces(ledger: Connections) -> None:
    one, two, three = (Claim("key", "print", owner, 100.0) for owner in "abc")
    claim = idempotency_table.claim
    assert ledger.write(partial(claim, wanted=one, now=1.0)) == []
    assert ledger.write(partial(claim, wanted=two, now=1.0)) is None
    assert ledger.write(partial(claim, wanted=two, now=1.0, instead_of=one)) == [one]
    ledger.write(partial(idempotency_table.mark_answered, claimed=two))
    assert ledger.write(partial(claim, wanted=three, now=100.0)) == [replace(two, done=True)]


def test_an_abandoned_claim_does_not_affect_a_later_one_of_the_same_process(ledger: Connections) -> None:
    given_up, later = Claim("key", "print", "me", 100.1), Claim("key", "print", "me", 100.2)
    assert claims(ledger, given_up)
    assert ledger.write(partial(idempotency_table.release_unanswered, claimed=given_up))
    assert ledger.read(partial(idempotency_table.is_free, name="key"))
    assert claims(ledger, later)
    assert not ledger.write(partial(idempotency_table.mark_answered, claimed=given_up))
    assert ledger.write(partial(idempotency_table.release_unanswered, claimed=given_up)), "it is there no more"
    assert not ledger.read(partial(idempotency_table.is_free, name="key")), "nor is its answer to be dropped"
    assert ledger.read(partial(idempotency_table.find, name="key", now=1.0)) == later
    assert ledger.write(partial(idempotency_table.mark_answered, claimed=later))
    assert not ledger.write(partial(idempotency_table.release_unanswered, claimed=later))
    assert ledger.read(partial(idempotency_table.find, name="key", now=1.0)) == replace(later, done=True)


def test_a_claim_that_was_taken_over_adds_no_result_to_the_next_answer(ledger: Connections) -> None:
    frozen, later = Claim("key", "print", "frozen", 100.0), Claim("key", "print", "me", 100.0)
    assert claims(ledger, frozen)
    assert claims(ledger, later, instead_of=frozen)
    ledger.write(partial(idempotency_table.contain, claimed=frozen, result_ids=[ONE]))
    ledger.write(partial(idempotency_table.contain, claimed=later, result_ids=[TWO]))
    assert ledger.read(partial(idempotency_table.containing, result_id=ONE)) == []
    assert ledger.read(partial(idempotency_table.containing, result_id=TWO)) == [later]


def test_a_claim_taken_over_while_it_adds_its_result_does_not_add_it(connect: Connect) -> None:
    frozen, later = Claim("key", "print", "frozen", 100.0), Claim("key", "print", "me", 100.0)
    here, there = connect(), connect()
    assert claims(here, frozen)
    with ThreadPoolExecutor(1) as thread:

        def contain(ledger: Transaction) -> Future[bool]:
            idempotency_table.contain(ledger, frozen, [ONE])
            claiming = thread.submit(claims, there, later, instead_of=frozen)
            wait([claiming], 0.3)
            return claiming

        assert here.write(contain).result()
    assert here.read(partial(idempotency_table.containing, result_id=ONE)) == []


def test_the_cache_keeps_what_was_used_last(ledger: Connections) -> None:
    for number, fingerprint in enumerate("abcd"):
        about = f'{{"result_ids": ["{number:032x}"], "100%": 1}}'
        ledger.write(partial(cache_table.insert_result, fingerprint=fingerprint, about=about, now=float(number)))
    ledger.write(partial(cache_table.record_hit, fingerprint="a", now=9.0))
    ledger.write(partial(cache_table.keep_most_recent, limit=3))
    ledger.write(partial(cache_table.forget_result, result_id=f"{2:032x}"))
    ledger.write(partial(cache_table.insert_result, fingerprint="d", about="new", now=10.0))
    found = {one: ledger.read(partial(cache_table.find, fingerprint=one)) for one in "abcd"}
    first = (f'{{"result_ids": ["{0:032x}"], "100%": 1}}', 9.0)
    assert found == {"a": first, "b": None, "c": None, "d": ("new", 10.0)}


def test_a_tombstone_outlasts_later_inserts(ledger: Connections) -> None:
    sidecars = [{"id": one, "owner": "o", "created": "2026-11-23T07:00:00.250+00:00", "bytes": 9} for one in (ONE, TWO)]

    def enter(*, saved: bool) -> None:
        ledger.write(partial(index_table.enter, rows=[row_of(one, saved=saved) for one in sidecars]))

    enter(saved=False)
    assert ledger.write(partial(index_table.bury, result_id=ONE, owner="o", now=5.0), synced=True)
    assert not ledger.write(partial(index_table.bury, result_id=ONE, owner="o", now=6.0), synced=True)
    enter(saved=True)
    assert ledger.read(partial(index_table.deleted, result_ids=[ONE, TWO])) == {ONE}
    assert ledger.read(partial(index_table.known, result_ids=[ONE, TWO])) == {TWO}
    assert ledger.read(partial(index_table.find, result_id=TWO)) == row_of(sidecars[1], saved=True)
    assert ledger.read(partial(index_table.to_remove, once_before=6.0, twice_before=0.0, limit=9)) == [ONE]
    assert ledger.read(index_table.unremoved) == 1
    for _ in range(2):
        ledger.write(partial(index_table.removed, result_id=ONE))
    ledger.write(partial(index_table.forget, result_ids=[ONE, TWO]))
    assert ledger.read(partial(index_table.find, result_id=TWO)) is None
    ledger.write(partial(index_table.drop_tombstones, deleted_before=6.0))
    assert ledger.read(partial(index_table.find, result_id=ONE)) is None
    assert not ledger.read(index_table.older_are_indexed)
    for _ in range(2):
        ledger.write(index_table.set_older_indexed)
    assert ledger.read(index_table.older_are_indexed)
