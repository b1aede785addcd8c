"""Runs ordinary and faulty clients for an hour: memory, descriptors, threads, slots and spool must not grow.

    .venv/bin/python -m benchmarks.load.soak [--minutes 60] [--workers 0] [--engine auto|fake] [--json F] [--plot F]

Requests have mixed sizes and formats, at about half of the machine's capacity; 1 % are bad input, 5 % of the clients
hang up, and the model is published again every minute. All processes of the service are sampled together every ten
seconds. Compared are the RSS after the first tenth of the time and at the end (medians of a tenth each), and the
descriptors, threads, slots in use and spool of the idle server before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness.inputs import ROOT, inpaint_body
from benchmarks.harness.metric_totals import metrics_page, total_in
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.processes import Server, retouch, retouch_is_ready
from benchmarks.harness.raw_http import Client, encode
from retouch.bench.load import raise_open_file_limit, run_on_uvloop

BAD_SHARE, HANG_UP_SHARE = 0.01, 0.05
SAMPLE_S, RELOAD_S = 10.0, 60.0
GAUGES = ("retouch_spool_items", "retouch_slot_bytes", "retouch_requests_in_flight", "retouch_queue_depth")
RSS_BAR = 0.03


@dataclass(slots=True)
class Soak:
    """The state of a run."""

    server: Server
    client: Client
    seconds: float
    rng: random.Random
    concurrency: int
    begun: float = field(default_factory=time.monotonic)
    answers: Counter[int] = field(default_factory=Counter)
    hung_up: int = 0
    reloads: int = 0
    samples: list[dict[str, float]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return time.monotonic() > self.begun + self.seconds

    async def clients(self, requests: list[bytes], bad: list[bytes]) -> None:
        """Run clients, each with one request after another and a short pause."""

        async def run_client() -> None:
            while not self.over:
                await self._ask(requests, bad)
                await asyncio.sleep(self.rng.expovariate(20))

        await asyncio.gather(*(run_client() for _ in range(self.concurrency)))

    async def _ask(self, requests: list[bytes], bad: list[bytes]) -> None:
        drawn = self.rng.random()
        if drawn < HANG_UP_SHARE:
            connection = await self.client.connection(fresh=True)
            connection.transport.write(self.rng.choice(requests))
            await asyncio.sleep(self.rng.uniform(0, 0.05))
            connection.transport.abort()
            self.hung_up += 1
            return
        request = self.rng.choice(bad if drawn < HANG_UP_SHARE + BAD_SHARE else requests)
        reply = await self.client.send(request)
        self.answers[reply.status] += 1
        if reply.status == 503:
            await asyncio.sleep(float(reply.headers.get("retry-after", "1")))

    async def reload(self, models: Path) -> None:
        """Publish the model again every minute."""
        manifest = next((models / "photos").glob("*/manifest.json"))
        while not self.over:
            await asyncio.sleep(min(RELOAD_S, self.seconds / 10))
            text = manifest.read_text()
            replacement = manifest.with_suffix(".new")
            replacement.write_text(text.rstrip() + " " * (self.reloads % 2 + 1))
            replacement.replace(manifest)
            self.reloads += 1

    async def sample(self) -> None:
        """Sample the service periodically."""
        while not self.over:
            self.samples.append(await self.take_sample())
            await asyncio.sleep(min(SAMPLE_S, self.seconds / 100))

    async def take_sample(self) -> dict[str, float]:
        """Return the figures of all processes of the service together."""
        parent = psutil.Process(self.server.process.pid)
        sample = {"at_s": time.monotonic() - self.begun, "rss_mb": 0.0, "descriptors": 0.0, "threads": 0.0}
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                sample["rss_mb"] += process.memory_info().rss / 2**20
                sample["descriptors"] += process.num_fds()
                sample["threads"] += process.num_threads()
        page = await metrics_page(self.client)
        return sample | {gauge.removeprefix("retouch_"): total_in(page, gauge) for gauge in GAUGES}

    async def settled(self) -> dict[str, float]:
        """Return the figures of the idle service, with all of our connections closed."""
        self.client.close()
        sample = await self.take_sample()
        for _ in range(60):
            await asyncio.sleep(0.5)
            sample = await self.take_sample()
            if not (sample["spool_items"] or sample["requests_in_flight"] or sample["slot_bytes"]):
                break
        return sample


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the whole soak test."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, settings = Path(name), {"workers": options.workers, "log_level": "warning", "model_poll_s": 1.0}
        if options.engine == "fake":
            start = retouch(folder, fake_batch_ms=20, **settings)
        else:
            shutil.copytree(ROOT / "models/photos", folder / "models/photos")
            start = retouch(folder, engine=options.engine, models_dir=folder / "models", **settings)
        with start as server:
            await server.until_ready(retouch_is_ready)
            soak = Soak(server, server.client(), options.minutes * 60, random.Random(3), options.concurrency)
            sides = (64, 96, 128) if options.engine == "fake" else (96, 256, 300, 512)
            formats = ("jpeg", "png", "webp")
            requests = [encode("/v1/inpaint", *inpaint_body(s, format=f)) for s in sides for f in formats]
            bad = _bad_requests(sides[0])
            for request in requests:
                soak.answers[(await soak.client.send(request)).status] += 1
            before = await soak.settled()
            await asyncio.gather(soak.clients(requests, bad), soak.reload(folder / "models"), soak.sample())
            after = await soak.settled()
            soak.client.close()
    return _verdict(soak, before, after, options)


def _bad_requests(side: int) -> list[bytes]:
    content_type, body = inpaint_body(side)
    return [
        encode("/v1/inpaint", content_type, body[: len(body) // 2]),
        encode("/v1/inpaint", "text/plain", b"x" * 500),
        encode("/v1/inpaint", content_type, body.replace(b"\xff\xd8", b"\x00\x00")),
        encode("/v1/inpaint", *inpaint_body(side, quality="0")),
    ]


def _verdict(
    soak: Soak, before: dict[str, float], after: dict[str, float], options: argparse.Namespace
) -> dict[str, Any]:
    part = max(1, len(soak.samples) // 10)
    warm = soak.samples[2 * part // 2 + (part if len(soak.samples) > 20 else 0) :][:part]
    rss = [statistics.median(sample["rss_mb"] for sample in chosen) for chosen in (warm, soak.samples[-part:])]
    return {
        "minutes": options.minutes,
        "workers": options.workers,
        "engine": options.engine,
        "answers": {str(status): n for status, n in sorted(soak.answers.items())},
        "hung_up": soak.hung_up,
        "reloads": soak.reloads,
        "rss_mb": rss,
        "rss_growth": rss[1] / rss[0] - 1,
        "before": before,
        "after": after,
        "samples": soak.samples,
    }


def table(verdict: dict[str, Any]) -> str:
    """Format the verdict as Markdown."""
    before, after = verdict["before"], verdict["after"]
    lines = [f"| {verdict['minutes']:g} minutes, engine {verdict['engine']} | begin | end |", "|---|---|---|"]
    lines.append(
        f"| RSS after the warm-up and at the end, MB | {verdict['rss_mb'][0]:.1f} | {verdict['rss_mb'][1]:.1f} |"
    )
    shown = ("descriptors", "threads", "slot_bytes", "spool_items", "requests_in_flight")
    lines += [f"| {name.replace('_', ' ')}, idle | {before[name]:.0f} | {after[name]:.0f} |" for name in shown]
    statuses = ", ".join(f"{n} × {status}" for status, n in verdict["answers"].items())
    lines.append(
        f"\nGrowth of RSS {verdict['rss_growth']:.2%} (bar {RSS_BAR:.0%}); {statuses}; {verdict['hung_up']} hung up;"
    )
    lines.append(f"{verdict['reloads']} reloads.")
    return "\n".join(lines)


def draw(verdict: dict[str, Any], path: Path) -> None:
    """Plot RSS, descriptors, threads and spool over time."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    figure = Figure(figsize=(10, 6), layout="constrained")
    minutes = [sample["at_s"] / 60 for sample in verdict["samples"]]
    shown = (("rss_mb", "RSS, MB"), ("descriptors", "descriptors"), ("threads", "threads"), ("spool_items", "spool"))
    for axis, (name, title) in zip(figure.subplots(2, 2).flat, shown, strict=True):
        axis.plot(minutes, [sample[name] for sample in verdict["samples"]], color="#2a6f97", linewidth=0.9)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("minutes", fontsize=8)
        axis.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run, print and write; the exit status is 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run in minutes")
    parser.add_argument("--workers", type=int, default=0, help="front-end processes; 0: one process does everything")
    parser.add_argument("--engine", default="auto", help="runtime of the model")
    parser.add_argument("--concurrency", type=int, default=4, help="number of clients")
    add_output_flags(parser)
    options = parser.parse_args()
    raise_open_file_limit()
    verdict = run_on_uvloop(run(options))
    write_outputs(options, verdict, draw)
    print(table(verdict))
    idle = ("slot_bytes", "spool_items", "requests_in_flight")
    leaked = [name for name in idle if verdict["after"][name] > verdict["before"][name]]
    sys.exit(
        bool(leaked)
        or verdict["rss_growth"] > RSS_BAR
        or verdict["after"]["descriptors"] > verdict["before"]["descriptors"] + 3
    )


if __name__ == "__main__":
    main()
