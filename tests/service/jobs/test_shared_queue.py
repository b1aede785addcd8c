"""The queue of jobs that several hosts share, in a real PostgreSQL: which process takes which job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from service.jobs.shared_queue import SharedQueue
from service.ledger.contract import Transaction
from service.ledger.database import Database
from service.ledger.postgres.address import parse_address
from service.ledger.postgres.server import PostgresServer
from tests.serving.backing.postgres_server import PostgresCluster


@dataclass
class Member:
    """A process of the queue whose heartbeats the test sends."""

    id: str
    is_steady: bool = True
    lease_s: float = 100.0
    woken: list[str] = field(default_factory=list)

    def is_alive(self, owner_id: str) -> bool:
        raise NotImplementedError

    async def changed(self, topic: str, at_most_s: float) -> None:
        await asyncio.sleep(0)

    def wake(self, topic: str) -> None:
        self.woken.append(topic)


@pytest.fixture
def ledger(postgres: PostgresCluster) -> Iterator[Database]:
    with Database(PostgresServer(parse_address(postgres.new_database()))) as one:
        yield one


ANY = ("photos",)
"""Default models of a process."""


def queue(ledger: Database, name: str, slots: int = 8, *, steady: bool = True) -> SharedQueue:
    return SharedQueue(ledger, Member(name, steady), lambda: 1000.0, slots)


def job(number: int, owner: str = "", created_at: float = 999.0) -> Job:
    return Job(f"{number:032x}", "queued", owner, created_at + number / 1000, {}, attempts=1 if owner else 0)


async def enter(ledger: Database, *jobs: Job) -> None:
    for one in jobs:
        await ledger.write(partial(jobs_table.insert, job=one, max_unfinished=1000))


async def beat(ledger: Database, name: str, age_s: float = 0.0) -> None:
    def seen(one: Transaction) -> None:
        one.execute(
            "INSERT INTO nodes (id, seen_at) VALUES (?, clock_timestamp() - ? * interval '1 second')", (name, age_s)
        )

    await ledger.write(seen)


async def test_a_process_owns_what_it_accepts_while_it_has_a_free_slot(ledger: Database) -> None:
    here = queue(ledger, "here", slots=2)
    assert [here.owner_of_new(running) for running in range(3)] == ["here", "here", ""]


async def test_waiting_jobs_are_claimed_oldest_first_by_processes_with_a_free_slot(ledger: Database) -> None:
    await enter(ledger, job(3), job(1), job(2))
    here, there = queue(ledger, "here", slots=2), queue(ledger, "there")
    assert await here.take(["one that it runs", "another"], ANY) == []
    await beat(ledger, "here")
    assert [one.id for one in await here.take([], ANY)] == [job(1).id, job(2).id]
    assert await there.take([], ANY) == [replace(job(3), owner="there", attempts=1)]
    assert await there.take([], ANY) == []


async def test_a_process_claims_no_more_jobs_than_it_has_free_slots(ledger: Database) -> None:
    await enter(ledger, job(1), job(2))
    here = queue(ledger, "here", slots=3)
    await beat(ledger, "here")
    assert [one.id for one in await here.take(["one that it runs", "another"], ANY)] == [job(1).id]


async def test_every_job_is_claimed_once_by_concurrent_processes(ledger: Database) -> None:
    await enter(ledger, *(job(number) for number in range(60)))
    takers = [queue(ledger, f"taker{number}", slots=7) for number in range(8)]
    for taker in takers:
        await beat(ledger, taker.owner.id)
    taken: list[str] = []
    while found := [
        one.id for jobs in await asyncio.gather(*(taker.take([], ANY) for taker in takers)) for one in jobs
    ]:
        taken += found
    assert sorted(taken) == [job(number).id for number in range(60)]


async def test_only_jobs_of_processes_with_expired_leases_are_claimed(ledger: Database) -> None:
    await enter(ledger, job(1, "dead"), job(2, "alive"), job(3, "unknown"))
    await beat(ledger, "dead", age_s=101.0)
    await beat(ledger, "alive", age_s=50.0)
    assert await queue(ledger, "new", steady=False).take([], ANY) == []
    taken = await queue(ledger, "successor").take([], ANY)
    assert taken == [replace(job(1, "successor"), attempts=2), replace(job(3, "successor"), attempts=2)]


async def test_a_process_runs_its_own_job_whose_commit_was_lost_after_a_while(ledger: Database) -> None:
    """The process does not know the job if the confirmation of its commit was lost with the database's connection."""
    await enter(ledger, job(1, "here", created_at=980.0), job(2, "here", created_at=980.0), job(3, "here"))
    taken = await queue(ledger, "here").take([job(2).id], ANY)
    assert [one.id for one in taken] == [job(1).id]


async def test_a_returned_job_counts_as_no_crash(ledger: Database) -> None:
    await enter(ledger, job(1, "here"), job(2, "here"), job(3, "here"))
    here = queue(ledger, "here")
    await here.give_back([job(1).id, job(2).id])
    for name in ("here", "there"):
        await beat(ledger, name)
    given_back = [replace(job(number, "there"), attempts=2, given_back=1) for number in (1, 2)]
    assert await queue(ledger, "there").take([], ANY) == given_back
    await here.give_back([job(1).id])
    assert await here.take([], ANY) == [], "it belongs to another by now"
    here.slot_freed()
    assert isinstance(here.owner, Member)
    assert here.owner.woken == ["jobs"]


async def test_jobs_are_left_to_processes_that_have_their_models(ledger: Database) -> None:
    def of(number: int, **facts: object) -> Job:
        return replace(job(number), facts=facts)

    await enter(
        ledger,
        of(1, model="photos", deadline_at=2000.0),
        of(2, model="facades/2", deadline_at=2000.0),
        of(3, model=None, deadline_at=2000.0),
        of(4, model="gone", deadline_at=999.0),
        of(5, model="gone", deadline_at=999.0),
        of(6, model=None, deadline_at=2000.0),
    )
    for name in ("one", "other"):
        await beat(ledger, name)
    one, other = queue(ledger, "one", slots=3), queue(ledger, "other")
    assert [taken.id for taken in await one.take([], {"facades", "facades/2"})] == [job(n).id for n in (2, 3, 4)]
    assert [taken.id for taken in await other.take([])] == [job(5).id], "it has yet to fetch its models"
    assert [taken.id for taken in await other.take([], {"facades"})] == [job(6).id]
    assert [taken.id for taken in await other.take([], {"photos"})] == [job(1).id]
