"""The parts of a comparison: separate measurements of one running server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import Server
from benchmarks.harness.raw_http import Client, Reply
from benchmarks.peers.servers import Contender
from retouch.bench.schedule import poisson_due_times

SHARES = {"at_25": 0.25, "at_50": 0.5, "at_75": 0.75}
KNEE_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
ABANDONED, BURST, DRAINED = 384, 2000, 64
PARTS = ("at_100", *SHARES, "concurrency_32", "knee", "abandoned", "burst", "sigterm")
"""All parts, in the order of measurement: the last ones disturb the server, or end it."""
_DISRUPTIVE = ("knee", "abandoned", "burst", "sigterm")
_TINY_ONLY = ("at_100", "abandoned", "burst")
"""Parts for `tiny` only: with a model that takes seconds per batch they would take too long."""


def parts_of_round(requested: Sequence[str], model: str, *, last: bool) -> list[str]:
    """Return the parts of one round: the requested ones, by default all, some of them in the last round only."""
    if requested:
        return [part for part in PARTS if part in requested]
    chosen = [part for part in PARTS if last or part not in _DISRUPTIVE]
    return [part for part in chosen if model == "tiny" or part not in _TINY_ONLY]


@dataclass(frozen=True, slots=True)
class Subject:
    """A running server under test, and its request."""

    contender: Contender
    server: Server
    client: Client
    folder: Path
    request: bytes
    capacity: float
    """Pictures per second of the engine alone."""
    seconds: float
    reply_timeout_s: float
    """Seconds after which a reply counts as lost."""


async def measure_part(part: str, subject: Subject) -> dict[str, Any]:
    """Measure one of `PARTS`."""
    client, request = subject.client, subject.request
    if part == "concurrency_32":
        return await closed_loop(client, request, 32, subject.seconds)
    if part == "knee":
        return {"per_s": await knee(subject)}
    if part == "abandoned":
        return await abandon(subject)
    if part == "burst":
        figures = await burst(client, request)
        await _retry_until_ok(client, request)
        return figures
    if part == "sigterm":
        return await drain(subject.server, client, request)
    rate = 100.0 if part == "at_100" else SHARES[part] * subject.capacity
    return await open_loop(client, request, rate, subject.seconds, subject.reply_timeout_s)


async def closed_loop(client: Client, request: bytes, concurrency: int, seconds: float) -> dict[str, float]:
    """Return the replies 200 per second, and the number of other replies."""
    end, done, failed = time.perf_counter() + seconds, 0, 0

    async def send() -> None:
        nonlocal done, failed
        while time.perf_counter() < end:
            if (await client.send(request)).status == 200:
                done += 1
            else:
                failed += 1
                await asyncio.sleep(0.01)

    started = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(concurrency)))
    return {"per_s": done / (time.perf_counter() - started), "failed": failed}


async def open_loop(
    client: Client, request: bytes, rate: float, seconds: float, reply_timeout_s: float
) -> dict[str, float]:
    """Return the latencies of replies 200 in ms from their due time, and the share of requests answered in time."""
    due_times = poisson_due_times(rate, seconds, random.Random(7))
    latencies: list[float] = []
    begun = time.perf_counter()

    async def send(due_s: float) -> None:
        reply = await client.send(request)
        if reply.status == 200:
            latencies.append(time.perf_counter() - begun - due_s)

    tasks = []
    for due_s in due_times:
        await asyncio.sleep(max(0.0, begun + due_s - time.perf_counter()))
        tasks.append(asyncio.create_task(send(due_s)))
    _, late = await asyncio.wait(tasks, timeout=reply_timeout_s + 5)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    latencies.sort()
    in_time = sum(latency <= reply_timeout_s for latency in latencies) / len(due_times)
    if not latencies:
        return {"p50_ms": float("nan"), "p99_ms": float("nan"), "in_time": 0.0}
    return {"p50_ms": _percentile_ms(latencies, 0.5), "p99_ms": _percentile_ms(latencies, 0.99), "in_time": in_time}


def _percentile_ms(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] * 1e3


async def knee(subject: Subject) -> float:
    """Return the highest rate that the server sustains; 0 if none."""
    best = 0.0
    for share in KNEE_SHARES:
        rate = share * subject.capacity
        figures = await open_loop(subject.client, subject.request, rate, subject.seconds, subject.reply_timeout_s)
        if figures["in_time"] < 0.95:
            break
        best = rate
    return best


async def abandon(subject: Subject) -> dict[str, int | None]:
    """Return the numbers of abandoned requests and of computed ones among them; None if the server reports none."""
    contender, client, folder = subject.contender, subject.client, subject.folder
    before = await _executions(contender, client, folder)
    if before is None:
        return {"sent": None, "computed": None}
    connections = await asyncio.gather(*(client.connection(fresh=True) for _ in range(ABANDONED)))
    for connection in connections:
        connection.transport.write(subject.request)
    await asyncio.sleep(0.02)  # the requests are sent, and the first batches have started
    answered = sum(connection.surplus for connection in connections)  # answered before they could be abandoned
    for connection in connections:
        connection.transport.abort()
    previous = -1
    while (now := await _executions(contender, client, folder)) != previous:
        previous = now  # type: ignore[assignment]
        await asyncio.sleep(1.0)
    return {"sent": ABANDONED - answered, "computed": max(0, (now or 0) - before - answered)}


async def _executions(contender: Contender, client: Client, folder: Path) -> int | None:
    if contender.executed is not None:
        return int(await contender.executed(client, folder))
    count = folder / "executed"
    return count.stat().st_size if count.exists() else None


async def burst(client: Client, request: bytes) -> dict[str, Any]:
    """Send 2,000 requests at once and count the replies."""
    tasks = [asyncio.create_task(client.send(request)) for _ in range(BURST)]
    done, late = await asyncio.wait(tasks, timeout=120)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    statuses = Counter(task.result().status for task in done)
    with_retry = sum("retry-after" in task.result().headers for task in done if task.result().status != 200)
    after = await _retry_until_ok(client, request)
    return {
        "ok": statuses[200],
        "refused_with_retry_after": with_retry,
        "failed": sum(count for status, count in statuses.items() if status != 200) - with_retry,
        "unanswered": len(late),
        "works_after": after.status == 200,
    }


async def _retry_until_ok(client: Client, request: bytes) -> Reply:
    """Repeat a request for up to 30 s until it is answered with 200; returns the last reply."""
    end = time.monotonic() + 30
    while True:
        with contextlib.suppress(asyncio.TimeoutError):
            reply = await asyncio.wait_for(client.send(request), 10)
            if reply.status == 200 or time.monotonic() > end:
                return reply
        if time.monotonic() > end:
            return Reply(0, {}, b"", "unanswered")
        await asyncio.sleep(0.5)


async def drain(server: Server, client: Client, request: bytes) -> dict[str, Any]:
    """Send SIGTERM with 64 requests in flight."""
    tasks = [asyncio.create_task(client.send(request)) for _ in range(DRAINED)]
    await asyncio.sleep(0.02)
    in_flight = sum(not task.done() for task in tasks)
    server.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    done, late = await asyncio.wait(tasks, timeout=60)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    with contextlib.suppress(Exception):
        await asyncio.to_thread(server.process.wait, 60)
    return {
        "in_flight": in_flight,
        "answered": sum(task.result().status == 200 for task in done),
        "ended_after_s": round(time.monotonic() - began, 1),
        "exit_status": server.process.poll(),
    }
