from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from retouch.bench.load import LoadGenerator, Observation, Payload, ServerReply, raise_open_file_limit, run_on_uvloop
from retouch.bench.sender import encode, open_sender

PAYLOAD = Payload("/v1/translate", "text/plain", b"")


class FakeTime:
    """A clock that only `sleep` advances; `oversleeps` gives the excess of a sleep by its number."""

    def __init__(self, oversleeps: dict[int, float] | None = None) -> None:
        self.seconds = 100.0
        self._oversleeps = oversleeps or {}
        self._sleeps = 0

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)  # lets tasks that were started earlier run before time advances
        self.seconds += seconds + self._oversleeps.get(self._sleeps, 0.0)
        self._sleeps += 1


class FakeSender:
    """A sender that answers as told, and counts pending requests."""

    def __init__(self, serve: Callable[[], Awaitable[None]]) -> None:
        self._serve = serve
        self.paths: list[str] = []
        self.pending = self.most_under_way = 0

    async def send(self, payload: Payload) -> ServerReply:
        self.paths.append(payload.path)
        self.pending += 1
        self.most_under_way = max(self.most_under_way, self.pending)
        try:
            await self._serve()
        finally:
            self.pending -= 1
        return ServerReply(200)


async def at_once() -> None:
    pass


def loop_with(
    sender: FakeSender, observation: list[Observation], time_: FakeTime | None = None, **changes: object
) -> LoadGenerator:
    parts = {"now": time.perf_counter, "sleep": asyncio.sleep, "grace_s": 10.0, "payloads": [PAYLOAD]}
    if time_:
        parts |= {"now": time_.now, "sleep": time_.sleep}
    return LoadGenerator(sender=sender, on_reply=observation.append, **{**parts, **changes})  # type: ignore[arg-type]


async def test_requests_are_sent_when_they_are_due() -> None:
    observation: list[Observation] = []
    await loop_with(FakeSender(at_once), observation, FakeTime()).open_loop([0.5, 1.25, 3.0])
    assert [one.due_s for one in observation] == [one.sent_s for one in observation] == [0.5, 1.25, 3.0]


async def test_a_driver_that_slept_too_long_charges_the_wait_to_the_requests() -> None:
    """Coordinated omission: three requests were due while the generator stalled for two seconds."""
    observation: list[Observation] = []
    await loop_with(FakeSender(at_once), observation, FakeTime({1: 2.0})).open_loop([0.5, 1.0, 1.5, 2.0, 4.0])
    latencies_s = [one.done_s - one.due_s for one in observation]
    assert latencies_s == pytest.approx([0.0, 2.0, 1.5, 1.0, 0.0])
    assert observation[1].sent_s == pytest.approx(3.0)


async def test_an_open_loop_does_not_wait_for_the_server() -> None:
    released = asyncio.Event()

    async def when_released() -> None:
        if sender.pending == 50:
            released.set()
        await released.wait()

    sender = FakeSender(when_released)
    observation: list[Observation] = []
    await loop_with(sender, observation, FakeTime()).open_loop([number / 100 for number in range(50)])
    assert sender.most_under_way == 50
    assert len(observation) == 50


async def test_a_stalled_server_shows_in_the_due_time_latency_of_all_it_delayed(contract) -> None:
    """At 50 requests a second, those that become due during a stall of one second also wait for its end."""
    observation: list[Observation] = []
    async with open_sender(contract.url) as sender:
        loop = loop_with(sender, observation, payloads=[encode("/v1/translate", {"image": b"x"}, {})])
        await loop.open_loop([0.0])
        contract.stall_s = 1.0
        observation.clear()
        await loop.open_loop([number / 50 for number in range(60)])
    assert len(observation) == 60
    assert {one.reply.status for one in observation} == {200}
    slow = [one for one in observation if one.done_s - one.due_s > 0.25]
    assert len(slow) >= 30
    assert max(one.done_s - one.due_s for one in observation) > 0.9


async def test_payloads_are_sent_in_turn() -> None:
    sender = FakeSender(at_once)
    payloads = [Payload(path, "", b"") for path in ("/a", "/b", "/c")]
    await loop_with(sender, [], FakeTime(), payloads=payloads).open_loop([0.1, 0.2, 0.3, 0.4])
    assert sender.paths == ["/a", "/b", "/c", "/a"]


async def test_a_closed_loop_keeps_as_many_under_way_as_it_has_clients() -> None:
    clock = FakeTime()

    async def take_5_ms() -> None:
        await asyncio.sleep(0)
        clock.seconds += 0.005

    sender = FakeSender(take_5_ms)
    observation: list[Observation] = []
    await loop_with(sender, observation, now=clock.now, sleep=lambda _: asyncio.sleep(0)).closed_loop(3, 0.1)
    assert sender.most_under_way == 3
    assert len(observation) > 6
    assert all(one.due_s == pytest.approx(one.sent_s, abs=0.05) for one in observation)
    assert max(one.due_s for one in observation) < 0.1


async def test_a_server_that_never_answers_is_reported_as_unanswered() -> None:
    sender = FakeSender(lambda: asyncio.sleep(3600))
    observation: list[Observation] = []
    await loop_with(sender, observation, FakeTime(), grace_s=0.05).open_loop([0.0, 0.01])
    await loop_with(sender, observation, FakeTime(), grace_s=0.05).closed_loop(2, 0.01)
    assert [one.reply for one in observation] == [ServerReply(0, "unanswered")] * 4


@pytest.mark.parametrize("drive", [lambda loop: loop.open_loop([0.0, 3600.0]), lambda loop: loop.closed_loop(2, 3600)])
async def test_no_request_outlives_an_interrupted_run(
    drive: Callable[[LoadGenerator], Coroutine[Any, Any, None]],
) -> None:
    sent: list[None] = []

    async def never() -> None:
        sent.append(None)
        await asyncio.sleep(3600)

    run = asyncio.create_task(drive(loop_with(FakeSender(never), [])))
    while not sent:  # noqa: ASYNC110 -- there is no event to wait for
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_run_without_requests_ends() -> None:
    observation: list[Observation] = []
    await loop_with(FakeSender(at_once), observation).open_loop([])
    assert observation == []


async def the_loop_is_running() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_drives_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert run_on_uvloop(the_loop_is_running()).startswith("uvloop")


def test_asyncio_drives_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # importing it now fails
    assert run_on_uvloop(the_loop_is_running()).startswith("asyncio")


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 256), before[1]))
        raise_open_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
