"""A load generator with several processes, kept-alive connections and encoded bodies, so that it is no bottleneck.

A closed loop (each connection sends its next request when the last one is answered) measures throughput; an open loop
(requests are due at random times, from which latency counts) measures latency.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any

from benchmarks.harness.percentile import percentile
from benchmarks.harness.raw_http import Client


@dataclass(frozen=True)
class Target:
    """The server, the request and the load."""

    port: int
    request: bytes
    """A whole HTTP request."""
    connections: int
    """Connections of all processes together; in an open loop, the maximum number of requests in progress."""
    processes: int = 1


@dataclass
class Answers:
    """The counts and latencies of the replies."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    """Replies other than 200, by the code of the problem, or by the reason why there was no reply."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """CPU time of the client's processes, from the first request on."""

    def add(self, other: Answers) -> None:
        self.statuses += other.statuses
        self.latencies_s += other.latencies_s
        self.batch_sizes += other.batch_sizes
        self.codes += other.codes
        self.seconds = max(self.seconds, other.seconds)
        self.cpu_s += other.cpu_s

    @property
    def per_s(self) -> float:
        """Good replies per second."""
        return self.statuses[200] / self.seconds

    @property
    def mean_batch(self) -> float:
        counted = sum(self.batch_sizes.values())
        return sum(size * count for size, count in self.batch_sizes.items()) / counted if counted else 0.0

    def percentile_ms(self, share: float) -> float:
        return percentile(self.latencies_s, share) * 1e3


@dataclass
class _Driver:
    """The load of one process."""

    target: Target
    connections: int
    seconds: float
    rate: float | None
    answers: Answers = field(default_factory=Answers)

    async def run(self) -> Answers:
        client = Client("127.0.0.1", self.target.port)
        opened = [await client.connection(fresh=True) for _ in range(self.connections)]
        for connection in opened:
            client.give_back(connection)
        started, cpu = time.perf_counter(), time.process_time()
        until = started + self.seconds
        await (self._closed(client, until) if self.rate is None else self._open(client, until, self.rate))
        self.answers.seconds = self.seconds if self.rate is None else time.perf_counter() - started
        self.answers.cpu_s = time.process_time() - cpu
        client.close()
        return self.answers

    async def _one(self, client: Client, due: float, until: float | None = None) -> None:
        reply = await client.send(self.target.request)
        now = time.perf_counter()
        if until is None or now < until:
            self.answers.statuses[reply.status] += 1
            self.answers.latencies_s.append(now - due)
            self.answers.batch_sizes[int(reply.headers.get("x-batch-size", 0))] += reply.status == 200
            self.answers.codes[reply.code] += reply.status != 200

    async def _closed(self, client: Client, until: float) -> None:
        async def connection() -> None:
            while (now := time.perf_counter()) < until:
                await self._one(client, now, until)

        await asyncio.gather(*(connection() for _ in range(self.connections)))

    async def _open(self, client: Client, until: float, rate: float) -> None:
        room, running = asyncio.Semaphore(self.connections), set[asyncio.Task[None]]()

        async def request(due: float) -> None:
            async with room:
                await self._one(client, due)

        due = time.perf_counter()
        while due < until:
            due += random.expovariate(rate)
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            task = asyncio.create_task(request(due))
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.wait(running, timeout=60)


def _process(driver: _Driver, pipe: Pipe) -> None:
    run: Callable[[Coroutine[Any, Any, Answers]], Answers] = asyncio.run
    pipe.send(run(driver.run()))


def drive(target: Target, seconds: float, rate: float | None = None) -> Answers:
    """Load a server for `seconds`: in an open loop of `rate` requests per second, without a rate in a closed loop."""
    context, pipes, processes = multiprocessing.get_context("spawn"), [], []
    for _ in range(target.processes):
        ours, theirs = context.Pipe(duplex=False)
        each = None if rate is None else rate / target.processes
        driver = _Driver(target, target.connections // target.processes, seconds, each)
        process = context.Process(target=_process, args=(driver, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    answers = Answers()
    for pipe in pipes:
        answers.add(pipe.recv())
    for process in processes:
        process.join()
    return answers
