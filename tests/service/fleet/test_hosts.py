"""No job is lost or repeated when hosts are cut off, their clocks differ, or their database fails over."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from uuid import uuid4

import httpx
import pytest

from tests.service.fleet.hosts import FleetOfHosts, running_hosts
from tests.service.fleet.nodes import ASYNC, PATH, Files, ended
from tests.serving.waiting import until_it_answers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetOfHosts]:
    """A fleet of two nodes."""
    with running_hosts(tmp_path_factory.mktemp("hosts"), 2, fake_batch_ms=100, max_batch_size=1) as running:
        yield running


async def accept(http: httpx.AsyncClient, url: str, files: Files, count: int) -> list[str]:
    sent = [http.post(f"{url}{PATH}", files=files, headers=ASYNC) for _ in range(count)]
    replies = await asyncio.gather(*sent)
    assert {reply.status_code for reply in replies} == {202}, [reply.text for reply in replies]
    return [reply.headers["location"] for reply in replies]


async def assert_all_succeed_once(http: httpx.AsyncClient, hosts: FleetOfHosts, jobs: list[str]) -> None:
    fleet = hosts.fleet
    for job in jobs:
        state = await ended(http, fleet, job)
        assert state["status"] == "succeeded", state
        await until_it_answers(lambda url=state["result_url"]: _is_found(http, f"{fleet.url(0)}{url}"), 15.0)
    lines = [line["job"] for node in fleet.nodes for line in node.lines("job ended")]
    ended_by = [job for job in lines if f"/v1/jobs/{job}" in jobs]
    assert len(ended_by) == len(set(ended_by)), "a job ended twice"


async def _differ_by_minutes(http: httpx.AsyncClient, one: str, other: str) -> bool:
    """Whether the Date headers of two nodes differ by more than ten minutes."""
    dates = [parsedate_to_datetime((await http.get(f"{url}/livez")).headers["date"]) for url in (one, other)]
    return abs((dates[1] - dates[0]).total_seconds()) > 600


async def _is_found(http: httpx.AsyncClient, url: str) -> bool:
    return (await http.get(url)).status_code == 200


async def test_all_that_was_promised_before_the_database_failed_over_is_kept(
    hosts: FleetOfHosts, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = hosts.fleet
    jobs = await accept(http, fleet.url(0), files, 20)
    key = {"Idempotency-Key": str(uuid4())}
    first = await http.post(f"{fleet.url(1)}{PATH}", files=files, headers=key)
    await asyncio.to_thread(hosts.databases.primary.stop, signal.SIGQUIT)
    await asyncio.sleep(1.5)  # meanwhile the standby answers, but takes no writes
    await asyncio.to_thread(hosts.databases.fail_over)
    back = time.monotonic()
    while (again := await http.post(f"{fleet.url(0)}{PATH}", files=files, headers=key)).status_code != 200:
        assert time.monotonic() - back < 8.0, again.text
        await asyncio.sleep(0.1)
    assert again.content == first.content
    await assert_all_succeed_once(http, hosts, jobs)
    await asyncio.to_thread(hosts.databases.restore)


async def test_jobs_of_a_host_that_is_cut_off_from_the_database_are_run_by_others(
    hosts: FleetOfHosts, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = hosts.fleet
    jobs = await accept(http, fleet.url(0), files, 20)
    hosts.cut_from_database(0)
    try:
        plain = await http.post(f"{fleet.url(0)}{PATH}", files=files)
        assert plain.status_code == 200, "what needs no database goes on"
        for job in jobs:
            assert (await ended(http, fleet, job, first_node=1))["status"] == "succeeded"
    finally:
        hosts.mend(0)
    await assert_all_succeed_once(http, hosts, jobs)


async def test_hosts_whose_clocks_differ_by_minutes_end_no_job_twice_and_find_each_others_answers(
    hosts: FleetOfHosts, files: Files, http: httpx.AsyncClient
) -> None:
    fleet = hosts.fleet
    hosts.clocks[0].shift(-420)
    hosts.clocks[1].shift(300)
    await until_it_answers(lambda: _differ_by_minutes(http, fleet.url(0), fleet.url(1)), 10.0)
    key = {"Idempotency-Key": str(uuid4())}
    replies = [await http.post(f"{fleet.url(number)}{PATH}", files=files, headers=key) for number in (0, 1, 0)]
    assert {reply.status_code for reply in replies} == {200}
    assert len({reply.content for reply in replies}) == 1
    await assert_all_succeed_once(http, hosts, await accept(http, fleet.url(0), files, 20))
