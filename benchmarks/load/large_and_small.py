"""Measures clients of small and of large pictures together: the small ones' latency, the large ones' loss of rate.

    .venv/bin/python -m benchmarks.load.large_and_small [--large 0 8 25 100] [--addresses 1] [--kind image]
        [--workers 0] [--seconds 60] [--rounds 3] [--pause 1] [--json FILE]

The server runs `models/photos`, saving off. A large picture is a flat PNG of 7070² pixels, 16 bits with alpha, 0.4 MB;
`--kind mask` sends a small image with such a mask instead, `--kind grey-mask` one with a grey mask of 8 bits, several
of which are decoded at once. Each large client sends one request after the other and obeys `Retry-After`; they share
`--addresses` addresses (127.0.1.x). The small client, at another address, sends 256×341 pixels with a pause between
requests. Every number of large clients is also measured without the small client, each time with a new server. Bars:
the small client's p90 is at most 2.5 s or five times that without large clients, its p99 at most twice that bar, and it
is never refused (a request that is unanswered at the end counts as answered then); the large clients keep 0.8 of their
rate without the small one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.inputs import photo_and_mask
from benchmarks.harness.processes import retouch, retouch_is_ready
from benchmarks.harness.raw_http import Client, Reply, encode
from retouch.bench.sender import encode as encode_parts
from service.imaging.files.png import encode_png

SMALL = (341, 256)
HOLE = 100
SMALL_ADDRESS, LARGE_NETWORK = "127.0.2.1", "127.0.1"
FIRST_S = 3.0
"""Seconds after which the small client starts, so that the server is already full of large pictures."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of one measurement."""

    large: int
    addresses: int
    kind: str
    workers: int
    side: int
    seconds: float
    pause_s: float
    small: bool = True
    """Whether the small client takes part."""


@dataclass(slots=True)
class Observations:
    """The observations of one measurement; times in seconds."""

    small_s: list[float] = field(default_factory=list)
    small_refused: Counter[str] = field(default_factory=Counter)
    small_unanswered_s: float = 0.0
    """Seconds for which the request that is unanswered at the end has waited."""
    stages_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    large_s: list[float] = field(default_factory=list)
    large_done: int = 0
    large_per_s: float = 0.0
    """Seconds until the last of them."""
    large_refused: Counter[str] = field(default_factory=Counter)

    def small(self, took_s: float, reply: Reply) -> None:
        if reply.status != 200:
            self.small_refused[f"{reply.status} {reply.code}"] += 1
            return
        self.small_s.append(took_s)
        known_s = 0.0
        for entry in reply.headers.get("server-timing", "").split(", "):
            name, _, milliseconds = entry.partition(";dur=")
            self.stages_s[name].append(float(milliseconds) / 1e3)
            known_s += float(milliseconds) / 1e3
        self.stages_s["elsewhere"].append(took_s - known_s)

    def large(self, took_s: float, reply: Reply, since: float) -> None:
        if reply.status == 200:
            self.large_s.append(took_s)
            self.large_done += 1
            self.large_per_s = self.large_done / (time.perf_counter() - since)
        else:
            self.large_refused[f"{reply.status} {reply.code}"] += 1


def flat(size: tuple[int, int], hole: int = 0) -> bytes:
    """Make a PNG of one colour with 16 bits and alpha; with `hole`, a black one with a white square of this side."""
    pixels = np.full((*size, 4), 0 if hole else 30_000, np.uint16)
    pixels[:, :, 3] = 65_535
    pixels[:hole, :hole] = 65_535
    return encode_png(pixels, None)


def grey_mask(size: tuple[int, int], hole: int = HOLE) -> bytes:
    """Make a PNG that is white in one corner."""
    mask = np.zeros((*size, 1), np.uint8)
    mask[:hole, :hole] = 255
    return encode_png(mask, None)


def small_body() -> tuple[str, bytes]:
    """Return content type and body of an inpaint of a photograph of 256×341."""
    photo, _ = photo_and_mask(SMALL[0])
    payload = encode_parts("/v1/inpaint", {"image": _scaled(photo), "mask": grey_mask(SMALL)}, {"format": "png"})
    return payload.content_type, payload.body


@cache
def large_body(kind: str, side: int) -> tuple[str, bytes]:
    """Return content type and body of an inpaint whose image or mask is large."""
    size = (side, side)
    if kind == "image":
        files, fields = {"image": flat(size), "mask": grey_mask(size)}, {}
    else:
        mask = flat(size, side // 2) if kind == "mask" else grey_mask(size, side // 2)
        files, fields = {"image": flat(SMALL), "mask": mask}, {"mask_resize": "nearest"}
    payload = encode_parts("/v1/inpaint", files, fields)
    return payload.content_type, payload.body


def _scaled(photo: bytes) -> bytes:
    import io  # noqa: PLC0415

    from PIL import Image  # noqa: PLC0415

    scaled = io.BytesIO()
    Image.open(io.BytesIO(photo)).resize((SMALL[1], SMALL[0])).save(scaled, "JPEG", quality=92)
    return scaled.getvalue()


async def send_small(client: Client, plan: Plan, observations: Observations) -> None:
    """Send small requests one after another until cancelled."""
    request = encode("/v1/inpaint", *small_body())
    while True:
        sent = time.perf_counter()
        try:
            reply = await client.send(request)
        except asyncio.CancelledError:
            observations.small_unanswered_s = time.perf_counter() - sent
            raise
        observations.small(time.perf_counter() - sent, reply)
        await asyncio.sleep(plan.pause_s)


async def send_large(client: Client, plan: Plan, observations: Observations, since: float) -> None:
    """Send large requests one after another until cancelled; waits as Retry-After says."""
    request = encode("/v1/inpaint", *large_body(plan.kind, plan.side))
    while True:
        sent = time.perf_counter()
        reply = await client.send(request)
        observations.large(time.perf_counter() - sent, reply, since)
        if reply.status != 200:
            await asyncio.sleep(float(reply.headers.get("retry-after", "1")))


async def measure(plan: Plan) -> Observations:
    """Run a server with its clients; returns their observations."""
    observations = Observations()
    with (
        tempfile.TemporaryDirectory() as folder,
        retouch(Path(folder), save=False, log_level="warning", workers=plan.workers) as server,
    ):
        await server.until_ready(retouch_is_ready)
        clients = [Client("127.0.0.1", server.port, SMALL_ADDRESS)]
        warm = encode("/v1/inpaint", *small_body())
        for _ in range(5):
            await clients[0].send(warm)
        since = time.perf_counter()
        tasks = []
        for number in range(plan.large):
            clients.append(Client("127.0.0.1", server.port, f"{LARGE_NETWORK}.{1 + number % plan.addresses}"))
            tasks.append(asyncio.create_task(send_large(clients[-1], plan, observations, since)))
        if plan.small:
            await asyncio.sleep(FIRST_S if plan.large else 0.0)
            tasks.append(asyncio.create_task(send_small(clients[0], plan, observations)))
        await asyncio.sleep(plan.seconds)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return observations


async def measure_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each number of large clients, over all rounds."""
    rows = []
    for large in options.large:
        addresses = min(options.addresses, max(1, large))
        plan = Plan(large, addresses, options.kind, options.workers, options.side, options.seconds, options.pause)
        mixed, alone = [], []
        for _ in range(options.rounds):
            mixed.append(await measure(plan))
            if large and not options.mixed_only:
                alone.append(await measure(Plan(**{**asdict(plan), "small": False})))
        rows.append(summary(plan, mixed, alone))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def summary(plan: Plan, mixed: list[Observations], alone: list[Observations]) -> dict[str, Any]:
    """Compute the figures of a row."""
    answered = sum(len(one.small_s) for one in mixed)
    waits_s = sorted(took for one in mixed for took in (*one.small_s, one.small_unanswered_s) if took)
    stages: dict[str, list[float]] = defaultdict(list)
    for one in mixed:
        for name, took in one.stages_s.items():
            stages[name] += took
    return {
        "large": plan.large,
        "addresses": plan.addresses,
        "small_answered": answered,
        "small_refused": _summed(one.small_refused for one in mixed),
        "small_s": {f"p{q}": _quantile(waits_s, q) for q in (50, 90, 99)},
        "small_mean_ms": {name: round(statistics.mean(took) * 1e3, 1) for name, took in stages.items()},
        "large_done": sum(one.large_done for one in mixed),
        "large_per_s": _mean([one.large_per_s for one in mixed]),
        "large_refused": _summed(one.large_refused for one in mixed),
        "large_s_p50": _quantile(sorted(took for one in mixed for took in one.large_s), 50),
        "large_alone_done": sum(one.large_done for one in alone),
        "large_alone_per_s": _mean([one.large_per_s for one in alone]),
        "large_alone_refused": _summed(one.large_refused for one in alone),
    }


def _summed(counts: Iterable[Counter[str]]) -> dict[str, int]:
    return dict(sum(counts, Counter()))


def _mean(values: list[float]) -> float:
    return round(statistics.mean(values), 4) if values else 0.0


def _quantile(ascending: list[float], percent: int) -> float:
    return round(ascending[min(len(ascending) - 1, len(ascending) * percent // 100)], 3) if ascending else 0.0


def table(rows: list[dict[str, Any]]) -> str:
    """Format a Markdown row for each number of large clients, then the small one's time by stage."""
    lines = [
        "| large clients | small: answered, refused | p50, p90, p99, s | large, /s | alone, /s | share | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        quantiles = ", ".join(f"{value:.2f}" for value in row["small_s"].values())
        share = f"{row['large_per_s'] / row['large_alone_per_s']:.2f}" if row["large_alone_per_s"] else ""
        lines.append(
            f"| {row['large']} at {row['addresses']} | {row['small_answered']}, {sum(row['small_refused'].values())} | "
            f"{quantiles} | {row['large_per_s']:.3f} | {row['large_alone_per_s']:.3f} | {share} | "
            f"{sum(row['large_refused'].values())} |"
        )
    stages = list(dict.fromkeys(name for row in rows for name in row["small_mean_ms"]))
    lines += ["", f"| mean of the small one, ms | {' | '.join(stages)} |", f"|{'---|' * (len(stages) + 1)}"]
    for row in rows:
        times = " | ".join(f"{row['small_mean_ms'].get(name, 0.0):.1f}" for name in stages)
        lines.append(f"| {row['large']} large | {times} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--large", type=int, nargs="+", default=[0, 8, 25, 100], help="numbers of clients that send large pictures"
    )
    parser.add_argument("--addresses", type=int, default=1, help="addresses that the large clients share")
    parser.add_argument("--kind", choices=["image", "mask", "grey-mask"], default="image", help="file that is large")
    parser.add_argument("--workers", type=int, default=0, help="front-end processes; 0: one process does everything")
    parser.add_argument("--side", type=int, default=7070, help="side of a large picture in pixels")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each measurement in seconds")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds that the small client waits between two requests"
    )
    parser.add_argument(
        "--mixed-only", action="store_true", help="do not measure the large clients without the small one"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    rows = asyncio.run(measure_all(options))
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options) | {"json": ""}, "rows": rows}, indent=2))
    print(table(rows))


if __name__ == "__main__":
    main()
