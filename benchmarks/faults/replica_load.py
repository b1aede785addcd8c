"""The clients of a round of `replica_kills`, and the kill in their midst."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from benchmarks.faults.replica_verdict import Round, outcome
from benchmarks.harness.raw_http import Client, Reply, encode

PLAIN, KEYED, JOB = "plain", "keyed", "job"
_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Load:
    """The clients of one round."""

    client: Client
    body: Mapping[str, tuple[str, bytes]]
    """Content type and body of the requests, by kind."""
    left: int
    round: Round
    digests: set[str]
    """Hashes of all pictures so far: the fake engine answers each request with the same."""
    first: int
    """The number of replies, at least 1, at which `reached` is set."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    done: int = 0
    jobs: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """Location of each keyed result."""

    async def run(self, clients: int, kill: Callable[[], Awaitable[None]]) -> None:
        """Send all requests, from that many clients, and call `kill` after the first replies.

        Raises:
            Exception: the first error of a client or of `kill`; the others are cancelled.
        """
        tasks = [asyncio.create_task(self._send_all()) for _ in range(clients)]
        tasks.append(asyncio.create_task(self._kill_once_reached(kill)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _kill_once_reached(self, kill: Callable[[], Awaitable[None]]) -> None:
        await self.reached.wait()
        await kill()

    async def _send_all(self) -> None:
        """Send requests until none are left."""
        while self.left:
            self.left -= 1
            kind = JOB if self.left % 9 == 0 else (PLAIN, KEYED)[self.left % 2]
            await self._ask(kind)
            self.done += 1
            if self.done == self.first:
                self.reached.set()

    async def _ask(self, kind: str) -> None:
        name = uuid.uuid4().hex
        reply = await self.send(kind, name)
        self.round.replies[outcome(reply)] += 1
        if not reply.status:
            return
        if reply.headers.get("x-request-id") != name:
            self.round.odd.append(f"{kind} {name} got the reply to {reply.headers.get('x-request-id')}")
        if reply.status == 200:
            self.digests.add(hashlib.sha256(reply.body).hexdigest())
            if len(self.digests) > 1:
                self.round.odd.append(f"{kind} {name} got another picture of {len(reply.body)} bytes")
        if reply.status == 200 and kind == KEYED:
            self.keys[name] = reply.headers["location"]
        if reply.status == 202:
            self.jobs.append(reply.headers["location"])

    async def send(self, kind: str, name: str) -> Reply:
        """Send a request; name: its id, and its key if its kind has one."""
        headers = {"X-Request-ID": name}
        if kind == KEYED:
            headers["Idempotency-Key"] = name
        if kind == JOB:
            headers["Prefer"] = "respond-async"
        try:
            return await asyncio.wait_for(
                self.client.send(encode("/v1/inpaint", *self.body[kind], headers)), _TIMEOUT_S
            )
        except asyncio.TimeoutError:
            return Reply(0, {}, b"", "hung")

    async def end_of_job(self, location: str) -> str:
        """Poll a job; returns its last state."""
        state, end = "", time.monotonic() + _TIMEOUT_S
        while state not in ("succeeded", "failed", "cancelled") and time.monotonic() < end:
            await asyncio.sleep(0.1)
            reply = await self.client.get(location)
            state = json.loads(reply.body)["status"] if reply.status == 200 else outcome(reply)
        return state


def kill_processes(processes: Sequence[psutil.Process]) -> None:
    """Kill processes with SIGKILL; those after the first may end with it.

    Raises:
        ProcessLookupError: the first has ended before.
    """
    first, *others = processes
    os.kill(first.pid, signal.SIGKILL)
    for process in others:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
