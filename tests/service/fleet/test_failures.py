"""Killed or frozen servers lose no job; an unreachable database stops only what needs it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.service.fleet.conftest import StartFleet
from tests.service.fleet.nodes import ASYNC, PATH, Files, Fleet, ended, running_fleet
from tests.serving.backing.postgres_server import WRITTEN, PostgresCluster, running_postgres
from tests.serving.waiting import until

pytestmark = pytest.mark.slow


async def accept(http: httpx.AsyncClient, fleet: Fleet, files: Files, count: int, node: int) -> list[str]:
    sent = [http.post(f"{fleet.url(node)}{PATH}", files=files, headers=ASYNC) for _ in range(count)]
    replies = await asyncio.gather(*sent)
    assert {reply.status_code for reply in replies} == {202}, {reply.text for reply in replies}
    return [reply.headers["location"] for reply in replies]


async def assert_all_succeed(http: httpx.AsyncClient, fleet: Fleet, jobs: list[str]) -> None:
    for job in jobs:
        state = await ended(http, fleet, job)
        assert state["status"] == "succeeded", state
        node = next(number for number in range(len(fleet.nodes)) if number not in fleet.killed)
        assert (await http.get(f"{fleet.url(node)}{state['result_url']}")).status_code == 200


async def test_a_server_that_is_killed_loses_no_job(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(3, fake_batch_ms=200, max_batch_size=2)
    jobs = await accept(http, fleet, files, 20, 0)
    fleet.kill(0)
    await assert_all_succeed(http, fleet, jobs)


async def test_what_was_promised_in_the_store_is_served_by_others_when_a_server_and_its_disk_are_lost(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(2, promise="store")
    sent = [http.post(f"{fleet.url(0)}{PATH}", files=files, headers={"Idempotency-Key": f"k{n}"}) for n in range(8)]
    replies = await asyncio.gather(*sent)
    assert {reply.status_code for reply in replies} == {200}, {reply.text for reply in replies if reply.is_error}
    fleet.kill(0)
    shutil.rmtree(fleet.nodes[0].folder)
    for number, reply in enumerate(replies):
        found = await http.get(f"{fleet.url(1)}{reply.headers['location']}")
        assert (found.status_code, found.content) == (200, reply.content)
        again = await http.post(f"{fleet.url(1)}{PATH}", files=files, headers={"Idempotency-Key": f"k{number}"})
        assert (again.headers["idempotency-replayed"], again.content) == ("true", reply.content)


def jobs_ended(fleet: Fleet) -> list[object]:
    """Ids of jobs in the servers' log lines `job ended`."""
    return [line["job"] for node in fleet.nodes for line in node.lines("job ended")]


async def test_a_server_that_is_frozen_and_goes_on_ends_no_job_twice(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(2, fake_batch_ms=300, max_batch_size=2)
    jobs = await accept(http, fleet, files, 10, 0)
    fleet.freeze(0)
    fleet.killed.add(0)  # so that `ended` does not poll the frozen node
    await assert_all_succeed(http, fleet, jobs)
    fleet.thaw(0)
    fleet.killed.clear()
    await assert_all_succeed(http, fleet, await accept(http, fleet, files, 4, 0))
    await until(lambda: len(jobs_ended(fleet)) >= 14)  # the log line follows the job's end in the ledger
    assert len(jobs_ended(fleet)) == len(set(jobs_ended(fleet))) == 14


async def test_a_server_that_is_stopped_leaves_its_jobs_to_others_at_once(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(2, fake_batch_ms=2000, max_batch_size=1, drain_timeout_s=1)
    jobs = await accept(http, fleet, files, 4, 0)
    fleet.nodes[0].terminate()
    fleet.killed.add(0)
    stopped = time.monotonic()
    await assert_all_succeed(http, fleet, jobs)
    assert time.monotonic() - stopped < 4 * 2.0 + 6.0, "no lease had to end"


async def test_the_answer_to_a_key_of_a_killed_server_is_computed_by_another(
    start_fleet: StartFleet, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = start_fleet(2)
    headers = {"Idempotency-Key": str(uuid4())}
    fault = fleet.nodes[0].hang_next_batch()
    first = asyncio.create_task(http.post(f"{fleet.url(0)}{PATH}", files=files, headers=headers))
    await until(lambda: not fault.exists())  # its batch has begun, and never ends
    fleet.kill(0)
    with pytest.raises(httpx.TransportError):
        await first
    again = await http.post(f"{fleet.url(1)}{PATH}", files=files, headers=headers)
    assert again.status_code == 200, again.text


@pytest.fixture
def own_postgres() -> Iterator[PostgresCluster]:
    with running_postgres() as cluster:
        yield cluster


async def test_while_the_database_is_unavailable_only_requests_that_need_it_are_refused(
    tmp_path: Path, own_postgres: PostgresCluster, files: Files, http: httpx.AsyncClient
) -> None:
    with running_fleet(tmp_path, own_postgres, 1) as fleet:
        url = fleet.url(0)
        (job,) = await accept(http, fleet, files, 1, 0)
        assert (await ended(http, fleet, job))["status"] == "succeeded"
        own_postgres.stop(signal.SIGQUIT)
        plain = [await http.post(f"{url}{PATH}", files=files) for _ in range(3)]
        assert {reply.status_code for reply in plain} == {200}
        refused = [
            await http.post(f"{url}{PATH}", files=files, headers=ASYNC),
            await http.post(f"{url}{PATH}", files=files, headers={"Idempotency-Key": "one"}),
            await http.get(f"{url}{job}"),
            await http.get(f"{url}{plain[0].headers['location']}"),
        ]
        assert [reply.status_code for reply in refused] == [503] * 4
        assert {reply.json()["code"] for reply in refused} == {"ledger_unavailable"}
        assert (await http.get(f"{url}/readyz")).status_code == 200
        own_postgres.start()
        back = time.monotonic()
        while (await http.get(f"{url}{job}")).status_code != 200:
            assert time.monotonic() - back < 5.0
            await asyncio.sleep(0.05)
        for reply in plain:
            for _ in range(200):
                if (await http.get(f"{url}{reply.headers['location']}")).content == reply.content:
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError("a promised result is missing")
        (another,) = await accept(http, fleet, files, 1, 0)
        assert (await ended(http, fleet, another))["status"] == "succeeded"
        shown = fleet.nodes[0].log + (await http.get(f"{url}/metrics")).text + "".join(one.text for one in refused)
        assert WRITTEN not in shown
        assert "that-must-not-be-logged" not in shown
