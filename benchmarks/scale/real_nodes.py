"""Real nodes on this machine: `retouch serve` with the fake engine, their calibration, and load through a balancer."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.inputs import translate_body, write_fake_models
from benchmarks.harness.percentile import percentile
from benchmarks.harness.raw_http import Client, Reply, encode
from benchmarks.scale.arrivals import Arrival
from benchmarks.scale.balancing import BALANCINGS
from benchmarks.scale.service_times import ServiceTimes
from retouch.bench.report import parse_server_timing
from tests.serving.served_process import ServedProcess

_BEFORE, _AFTER = ("decode", "preprocess"), ("postprocess", "encode")


@contextmanager
def real_nodes(folder: Path, count: int, batch_ms: float, max_batch: int) -> Iterator[list[Client]]:
    """Run `count` nodes; yields a client for each."""
    write_fake_models(folder / "models", max_batch=max_batch)
    chosen = {"models_dir": folder / "models", "fake_batch_ms": batch_ms, "max_batch_size": max_batch, "save": False}
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            home = folder / f"node {number} of {count}"
            home.mkdir()
            node = stack.enter_context(ServedProcess(home, log_level="info", **chosen))
            clients.append(Client("127.0.0.1", int(node.url.rpartition(":")[2])))
        yield clients


def encode_request(deadline_s: float | None = None) -> bytes:
    """Return the request that is measured: a translation of a picture of 64², as JPEG."""
    headers = {} if deadline_s is None else {"X-Request-Timeout-Ms": str(round(deadline_s * 1e3))}
    return encode("/v1/translate", *translate_body(64), headers)


@dataclass(slots=True)
class Measured:
    """Answers of one load of real nodes."""

    latencies_s: list[float] = field(default_factory=list)
    """Latencies of the requests that were answered 200, from their due time."""
    unanswered: int = 0
    batch_sizes: list[int] = field(default_factory=list)
    late_sends_s: list[float] = field(default_factory=list)
    """Seconds by which the load generator sent requests too late: its error."""
    seconds: float = 0.0

    @property
    def per_s(self) -> float:
        return len(self.latencies_s) / self.seconds

    def figures(self) -> dict[str, float]:
        """Return the figures that are compared."""
        return {
            "p50_ms": percentile(self.latencies_s, 0.5) * 1e3,
            "p99_ms": percentile(self.latencies_s, 0.99) * 1e3,
            "per_s": self.per_s,
        }


async def load(clients: Sequence[Client], arrivals: Sequence[Arrival], balancing: str, request: bytes) -> Measured:
    """Send each arrival at its time to the node that the balancer chooses."""
    balancer = BALANCINGS[balancing](random.Random(0))
    for number in range(len(clients)):
        balancer.add(number)
    measured, tasks, started = Measured(), set[asyncio.Task[None]](), time.perf_counter()

    async def send_to_node(due: float) -> None:
        node = balancer.choose()
        reply = await clients[node].send(request)
        balancer.ended(node)
        if reply.status == 200:
            measured.latencies_s.append(time.perf_counter() - due)
            measured.batch_sizes.append(int(reply.headers["x-batch-size"]))
        else:
            measured.unanswered += 1

    for arrival in arrivals:
        due = started + arrival.at_s
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        measured.late_sends_s.append(time.perf_counter() - due)
        task = asyncio.create_task(send_to_node(due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    while tasks:
        await asyncio.wait(set(tasks))
    measured.seconds = time.perf_counter() - started
    await _hang_up(clients)
    return measured


async def calibrate(client: Client, max_batch: int, lone: int = 40, full_s: float = 8.0) -> ServiceTimes:
    """Measure one node: batches of one with its host's work, then full batches in a closed loop.

    The part of a single request's time that no stage reports (HTTP, waiting for threads, the client) counts half before
    the batch and half after it.
    """
    before, after, infer_s = [], [], defaultdict[int, list[float]](list)
    for _ in range(lone + 5):
        sent = time.perf_counter()
        reply = await client.send(encode_request())
        took_s, stages = time.perf_counter() - sent, _stages_s(reply)
        rest_s = took_s - stages["infer"] - sum(stages[name] for name in (*_BEFORE, *_AFTER) if name in stages)
        before.append(sum(stages.get(name, 0.0) for name in _BEFORE) + rest_s / 2)
        after.append(sum(stages.get(name, 0.0) for name in _AFTER) + rest_s / 2)
        infer_s[1].append(stages["infer"])
        await asyncio.sleep(0.02)
    cycle_s = await _closed_loop(client, max_batch, full_s, infer_s)
    await _hang_up([client])
    one_s, full_batch_s = (statistics.median(infer_s[size]) for size in (1, max_batch))
    each_s = max(0.0, (full_batch_s - one_s) / (max_batch - 1))
    return ServiceTimes(
        batch_fixed_s=one_s - each_s,
        batch_each_s=each_s,
        max_batch=max_batch,
        between_batches_s=max(0.0, cycle_s - full_batch_s),
        host_before_s=statistics.median(before[5:]),
        host_after_s=statistics.median(after[5:]),
        host_cores=1,
        source="one real node, measured right before",
    )


async def _hang_up(clients: Sequence[Client]) -> None:
    """Close the clients' connections before their event loop ends."""
    for client in clients:
        client.close()
    await asyncio.sleep(0.05)


async def _closed_loop(client: Client, max_batch: int, seconds: float, infer_s: dict[int, list[float]]) -> float:
    """Keep the device busy; collects batch times by size and returns the seconds from one full batch to the next.

    These seconds are a median over the run, so that a pause of the machine does not count.
    """
    started, replied_at = time.perf_counter(), list[float]()
    end = started + seconds

    async def keep_sending() -> None:
        while time.perf_counter() < end:
            reply = await client.send(encode_request())
            replied_at.append(time.perf_counter())
            infer_s[int(reply.headers["x-batch-size"])].append(_stages_s(reply)["infer"])

    await asyncio.gather(*(keep_sending() for _ in range(3 * max_batch)))
    full = replied_at[3 * max_batch : -3 * max_batch]
    return statistics.median(later - at for at, later in zip(full, full[max_batch:], strict=False))


def _stages_s(reply: Reply) -> dict[str, float]:
    return {name: ms / 1e3 for name, ms in parse_server_timing(reply.headers["server-timing"]).items()}
