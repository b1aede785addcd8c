"""Sends three times the service's capacity for a minute: measures goodput, latency and refusals.

    .venv/bin/python -m benchmarks.load.overload [--models tiny,photos] [--seconds 60] [--workers 0] [--json FILE]

`tiny` is the fake engine (8 ms for a batch of 8), 64² JPEG in and out; `photos` the shipped model at 256². The capacity
is the number of answers per second at concurrency 64, measured just before the overload: an open loop of three times
that rate for `--seconds`, every request with a deadline (`X-Request-Timeout-Ms`). A refused client repeats its request
once, after `Retry-After`, with the refusal's `X-Request-ID`; a sample of the clients repeats without this id and is
counted separately. Requests at twice the capacity are refused, so the last ones are told to return two or three times
`--seconds` later, and a run takes four times as long as the overload. Reported:

- goodput: replies 200 within their deadline per second of the overload, divided by the capacity;
- accepted requests: p99, from sending to the whole reply, compared with the deadline;
- refusals: p50, p99 and the slowest, from sending to the whole reply, and the share under 20 ms;
- obeyed: the share of replies 200 to requests that were repeated at the given time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.inputs import inpaint_body, translate_body
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.percentile import percentile
from benchmarks.harness.processes import retouch, retouch_is_ready
from benchmarks.harness.raw_http import Client, Reply, encode
from retouch.bench.load import raise_open_file_limit, run_on_uvloop
from retouch.bench.schedule import poisson_due_times

FACTOR = 3.0
DEADLINES_MS = {"tiny": 500, "photos": 5000}
NEW_ID_SHARE = 0.1
"""Share of the refused clients that return without the id of their refusal."""
REFUSED = (503, 504)


@dataclass(slots=True)
class Tally:
    """The outcome of the requests; times in seconds."""

    sent: int = 0
    accepted: list[float] = field(default_factory=list)
    good: list[float] = field(default_factory=list)
    """Times of the replies within their deadline, since the overload began."""
    refused: list[float] = field(default_factory=list)
    retry_after_s: list[int] = field(default_factory=list)
    too_late: int = 0
    """Requests that were accepted, and then answered 504."""
    failed: int = 0
    obeyed: dict[bool, list[bool]] = field(default_factory=lambda: {True: [], False: []})
    """Whether each retry got 200, by whether it sent the id of the refusal."""


@dataclass(frozen=True, slots=True)
class Overload:
    """One run of overload."""

    client: Client
    path: str
    body: tuple[str, bytes]
    deadline_ms: int
    rng: random.Random
    tally: Tally

    def request(self, request_id: str = "") -> bytes:
        headers = {"X-Request-Timeout-Ms": str(self.deadline_ms)}
        if request_id:
            headers["X-Request-ID"] = request_id
        return encode(self.path, *self.body, headers)

    async def send_fresh(self, fresh: bytes, begun: float) -> None:
        sent = time.perf_counter()
        reply = await self.client.send(fresh)
        now = time.perf_counter()
        elapsed_s = now - sent
        self.tally.sent += 1
        if reply.status == 200:
            self.tally.accepted.append(elapsed_s)
            if elapsed_s <= self.deadline_ms / 1e3:
                self.tally.good.append(now - begun)
        elif reply.status in REFUSED and "retry-after" in reply.headers:
            self.tally.refused.append(elapsed_s)
            await self.come_back(reply, begun)
        elif reply.status == 504:
            self.tally.too_late += 1
        else:
            self.tally.failed += 1

    async def come_back(self, refusal: Reply, begun: float) -> None:
        """Repeat a refused request once, at the time that the refusal gave."""
        pause_s = int(refusal.headers["retry-after"])
        self.tally.retry_after_s.append(pause_s)
        known = self.rng.random() >= NEW_ID_SHARE
        await asyncio.sleep(pause_s)
        sent = time.perf_counter()
        reply = await self.client.send(self.request(refusal.headers["x-request-id"] if known else ""))
        now = time.perf_counter()
        self.tally.obeyed[known].append(reply.status == 200)
        if reply.status == 200:
            self.tally.accepted.append(now - sent)
            if now - sent <= self.deadline_ms / 1e3:
                self.tally.good.append(now - begun)

    async def run(self, rate: float, seconds: float) -> None:
        """Run the open loop, then wait until every refused request has returned."""
        fresh, begun = self.request(), time.perf_counter()
        tasks = set()
        for due_s in poisson_due_times(rate, seconds, self.rng):
            await asyncio.sleep(max(0.0, begun + due_s - time.perf_counter()))
            task = asyncio.create_task(self.send_fresh(fresh, begun))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(set(tasks))


async def capacity(client: Client, request: bytes, seconds: float) -> float:
    """Measure replies per second at concurrency 64."""
    end, done = time.perf_counter() + seconds, 0

    async def keep_sending() -> None:
        nonlocal done
        while time.perf_counter() < end:
            reply = await client.send(request)
            done += reply.status == 200

    started = time.perf_counter()
    await asyncio.gather(*(keep_sending() for _ in range(64)))
    return done / (time.perf_counter() - started)


async def measure(model: str, seconds: float, fake_batch: tuple[float, int], workers: int) -> dict[str, Any]:
    """Measure one model."""
    path, body = ("/v1/translate", translate_body(64)) if model == "tiny" else ("/v1/inpaint", inpaint_body(256))
    batch_ms, max_batch = fake_batch
    more: dict[str, Any] = {"fake_batch_ms": batch_ms, "max_batch_size": max_batch} if model == "tiny" else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        retouch(Path(folder), save=False, log_level="warning", workers=workers, **more) as server,
    ):
        await server.until_ready(retouch_is_ready)
        client, plain = server.client(), encode(path, *body)
        await capacity(client, plain, min(5.0, seconds))
        able = await capacity(client, plain, min(15.0, seconds))
        run = Overload(client, path, body, DEADLINES_MS[model], random.Random(5), Tally())
        await run.run(FACTOR * able, seconds)
        client.close()
    return summary(run.tally, able, seconds, run.deadline_ms)


def summary(tally: Tally, able: float, seconds: float, deadline_ms: int) -> dict[str, Any]:
    """Compute the figures of a run."""
    during = sum(at_s <= seconds for at_s in tally.good)
    goodput = during / seconds
    known, unknown = tally.obeyed[True], tally.obeyed[False]
    return {
        "capacity_per_s": able,
        "sent_per_s": tally.sent / seconds,
        "goodput_per_s": goodput,
        "goodput_ratio": goodput / able,
        "deadline_ms": deadline_ms,
        "accepted_ms": _quantiles(tally.accepted),
        "refused": len(tally.refused),
        "refused_ms": _quantiles(tally.refused),
        "refused_under_20_ms": sum(elapsed_s < 0.02 for elapsed_s in tally.refused) / max(1, len(tally.refused)),
        "retry_after_s": _quantiles([float(seconds) for seconds in tally.retry_after_s], 1.0),
        "obeyed_succeeded": sum(known) / max(1, len(known)),
        "obeyed": len(known),
        "without_id_succeeded": sum(unknown) / max(1, len(unknown)),
        "too_late": tally.too_late,
        "failed": tally.failed,
        "good_each_second": [sum(int(at_s) == second for at_s in tally.good) for second in range(int(seconds))],
    }


def _quantiles(values: list[float], scale: float = 1e3) -> dict[str, float]:
    if not values:
        return {"p50": 0.0, "p99": 0.0, "max": 0.0}
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(percentile(values, share) * scale, 2) for name, share in at.items()}


def table(figures: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    rows = [
        ("capacity, /s", lambda f: f"{f['capacity_per_s']:.1f}"),
        ("sent, /s (refusals come back besides)", lambda f: f"{f['sent_per_s']:.1f}"),
        ("goodput / capacity (bar 0.95)", lambda f: f"{f['goodput_ratio']:.3f}"),
        ("p50, p99 of the accepted, ms", lambda f: f"{f['accepted_ms']['p50']:.0f}, {f['accepted_ms']['p99']:.0f}"),
        ("their deadline, ms", lambda f: str(f["deadline_ms"])),
        ("accepted, then 504", lambda f: str(f["too_late"])),
        ("refused", lambda f: str(f["refused"])),
        (
            "refusal p50, p99, slowest, ms",
            lambda f: ", ".join(f"{f['refused_ms'][q]:.1f}" for q in ("p50", "p99", "max")),
        ),
        ("refusals under 20 ms (bar 1)", lambda f: f"{f['refused_under_20_ms']:.4f}"),
        ("Retry-After p50, longest, s", lambda f: f"{f['retry_after_s']['p50']:.0f}, {f['retry_after_s']['max']:.0f}"),
        ("obeyed with the id, then 200 (bar 0.9)", lambda f: f"{f['obeyed_succeeded']:.3f} of {f['obeyed']}"),
        ("obeyed without it, then 200", lambda f: f"{f['without_id_succeeded']:.3f}"),
        ("no answer or another", lambda f: str(f["failed"])),
    ]
    lines = [f"| | {' | '.join(figures)} |", f"|{'---|' * (len(figures) + 1)}"]
    return "\n".join(lines + [f"| {name} | {' | '.join(show(f) for f in figures.values())} |" for name, show in rows])


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot goodput over time with capacity and load."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    figure = Figure(figsize=(10, 3), layout="constrained")
    for axis, (model, figure_of_model) in zip(
        figure.subplots(1, len(figures), squeeze=False)[0], figures.items(), strict=True
    ):
        axis.plot(figure_of_model["good_each_second"], color="#2a6f97", label="answered in time")
        axis.axhline(figure_of_model["capacity_per_s"], color="black", linestyle=":", linewidth=1, label="capacity")
        axis.axhline(figure_of_model["sent_per_s"], color="#c1121f", linestyle="--", linewidth=1, label="sent")
        axis.set_title(model, fontsize=9)
        axis.set_xlabel("seconds", fontsize=8)
        axis.set_ylabel("requests/s", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


async def run_all(options: argparse.Namespace) -> dict[str, Any]:
    """Run every model in turn."""
    fake_batch = (options.batch_ms, options.max_batch)
    models = options.models.split(",")
    return {model: await measure(model, options.seconds, fake_batch, options.workers) for model in models}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="tiny,photos", help="models to measure, separated by commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each measurement in seconds")
    parser.add_argument("--batch-ms", type=float, default=8.0, help="ms that the fake engine takes for a batch")
    parser.add_argument("--max-batch", type=int, default=8, help="largest batch of the fake engine")
    parser.add_argument("--workers", type=int, default=0, help="front-end processes; 0: one process does everything")
    add_output_flags(parser)
    options = parser.parse_args()
    raise_open_file_limit()
    figures = run_on_uvloop(run_all(options))
    write_outputs(options, figures, draw)
    print(table(figures))


if __name__ == "__main__":
    main()
