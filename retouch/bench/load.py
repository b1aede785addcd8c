"""Puts load on a server: `open_loop` at given times, whatever the server does; `closed_loop` with so many clients.

In an open loop a request is timed from when it was DUE. One that had to wait because the driver or the server stalled
counts that wait: otherwise a stall would hide the very requests it delays (coordinated omission).
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
NO_REPLY = 0


@dataclass(frozen=True, slots=True)
class Payload:
    """A request that is ready to be sent: encoded once, sent often."""

    path: str
    content_type: str
    body: bytes


class Answer(NamedTuple):
    """What came back, as it came: it is read after the run, not during it."""

    status: int
    """HTTP status; 0 where no reply came."""
    code: str = ""
    """The problem's code, or what kept the reply from coming."""
    detail: str = ""
    server_timing: str = ""
    batch_size: str = ""
    model: str = ""
    engine: str = ""


class Observation(NamedTuple):
    """One request; times in seconds since the run began."""

    due_s: float
    sent_s: float
    done_s: float
    answer: Answer


class Sender(Protocol):
    """Sends one request; never raises because of the server."""

    async def send(self, payload: Payload) -> Answer:
        """Send it and wait for the whole reply."""


@dataclass(frozen=True, slots=True)
class Loop:
    """What both loops need: who sends, what, the clock, and whom to tell of every reply."""

    sender: Sender
    payloads: list[Payload]
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    observed: Callable[[Observation], None]
    grace_s: float
    """How long after the last request the replies are awaited; who has none by then is `unanswered`."""

    async def open_loop(self, due_times: Iterable[float]) -> None:
        """Send a request at each of the times, with no limit on how many are under way."""
        begun = self.now()
        payloads = cycle(self.payloads)
        under_way: set[asyncio.Task[None]] = set()
        for due_s in due_times:
            wait_s = begun + due_s - self.now()
            await self.sleep(max(wait_s, 0.0))  # even when late: the replies need the loop, too
            task = asyncio.create_task(self._send(next(payloads), begun, due_s))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await self._settle(under_way)

    async def closed_loop(self, concurrency: int, duration_s: float) -> None:
        """Let `concurrency` clients send one request after the other."""
        begun = self.now()
        payloads = cycle(self.payloads)
        clients = {asyncio.create_task(self._client(payloads, begun, duration_s)) for _ in range(concurrency)}
        await self.sleep(duration_s)
        await self._settle(clients)

    async def _client(self, payloads: Iterator[Payload], begun: float, duration_s: float) -> None:
        while (now_s := self.now() - begun) < duration_s:
            await self._send(next(payloads), begun, now_s)

    async def _send(self, payload: Payload, begun: float, due_s: float) -> None:
        sent_s = self.now() - begun
        answer = Answer(NO_REPLY, "unanswered")
        try:
            answer = await self.sender.send(payload)
        finally:
            self.observed(Observation(due_s, sent_s, self.now() - begun, answer))

    async def _settle(self, tasks: set[asyncio.Task[None]]) -> None:
        if tasks:
            _, late = await asyncio.wait(set(tasks), timeout=self.grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where there is one: the driver shares the machine with what it measures."""
    try:
        import uvloop  # noqa: PLC0415 -- not on Windows
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def allow_open_files() -> None:
    """Raise the soft limit to the hard one: an open loop has no limit on its connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
