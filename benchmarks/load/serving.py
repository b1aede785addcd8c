"""Compares HTTP with direct calls of the same work, interleaved: latency at concurrency 1, throughput at 16.

    .venv/bin/python -m benchmarks.load.serving [--json FILE]

Latency: p50 of one 512² inpaint (JPEG in, PNG out) over HTTP, divided by the p50 of decode + preprocess + engine +
postprocess + encode called directly. Throughput: 256² inpaints per second (JPEG in and out) at concurrency 16, divided
by the images per second of the engine alone at the batch size that the server formed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness.engine_rate import engine_rate
from benchmarks.harness.inputs import ROOT, newest_version, photo_and_mask
from benchmarks.harness.processes import retouch, retouch_is_ready
from engines.base import BatchShape, Engine
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import read_manifest
from service.devices.cpu import CpuDevice
from service.imaging import crops, postprocess, preprocess
from service.imaging.files import codec

ROUNDS = 5


def direct(engine: Engine, photo: bytes, mask: bytes) -> None:
    """Do the work of one request without a server."""
    picture = codec.decode(photo, max_pixels=10**8)
    hole = codec.decode_mask(mask, "white", max_pixels=10**8)
    plan = crops.plan_crops(hole, engine.manifest.size, "auto")
    samples = [preprocess.inpaint_sample(picture, hole, crop, engine.manifest) for crop in plan]
    tiles = [tile for tile in CpuDevice().compute(engine, samples) if tile is not None]
    codec.encode(postprocess.paste_fills(picture, hole, plan, tiles), "png", 90)


async def post(session: aiohttp.ClientSession, photo: bytes, mask: bytes, **fields: str) -> str:
    """Send one inpaint request; returns the size of the batch in which it was computed."""
    form = aiohttp.FormData(fields)
    form.add_field("image", photo, filename="photo.jpg", content_type="image/jpeg")
    form.add_field("mask", mask, filename="mask.png", content_type="image/png")
    async with session.post("/v1/inpaint", data=form) as response:
        await response.read()
        assert response.status == 200, await response.text()
        return response.headers["X-Batch-Size"]


async def measure_latency(session: aiohttp.ClientSession, engine: Engine) -> dict[str, float]:
    """Return the p50 in ms of both ways, alternating after a few requests."""
    photo, mask = photo_and_mask(512)
    times: dict[str, list[float]] = {"http": [], "direct": []}
    for _ in range(ROUNDS * 4):
        for _ in range(2):
            started = time.perf_counter()
            await post(session, photo, mask)
            times["http"].append(time.perf_counter() - started)
        for _ in range(2):
            started = time.perf_counter()
            direct(engine, photo, mask)
            times["direct"].append(time.perf_counter() - started)
    http, alone = (statistics.median(times[way]) * 1e3 for way in ("http", "direct"))
    return {"http_p50_ms": http, "direct_p50_ms": alone, "ratio": http / alone}


async def measure_throughput(session: aiohttp.ClientSession, engine: Engine, seconds: float) -> dict[str, Any]:
    """Return images per second over HTTP at concurrency 16, and of the engine alone at the same batch size."""
    photo, mask = photo_and_mask(256)
    over_http, alone, batches = [], [], Counter[str]()

    async def client(until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            batches[await post(session, photo, mask, format="jpeg")] += 1
            done += 1
        return done

    for _ in range(ROUNDS):
        started = time.perf_counter()
        done = sum(await asyncio.gather(*(client(started + seconds) for _ in range(16))))
        over_http.append(done / (time.perf_counter() - started))
        size = int(batches.most_common(1)[0][0])
        alone.append(engine_rate(engine, BatchShape(size, 256, 256), seconds))
    http_rate, alone_rate = statistics.median(over_http), statistics.median(alone)
    return {
        "http_images_per_s": http_rate,
        "engine_images_per_s": alone_rate,
        "ratio": http_rate / alone_rate,
        "batch_sizes": dict(batches),
    }


async def run(seconds: float) -> dict[str, Any]:
    """Run both measurements against one server."""
    version = newest_version(ROOT / "models/photos")
    with tempfile.TemporaryDirectory() as folder, retouch(Path(folder)) as server:
        await server.until_ready(retouch_is_ready)
        engine = open_engine(version, read_manifest(version), EngineOptions(cache_dir=ROOT / "cache"))
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", connector=connector) as session:
            for side in (256, 512):
                await post(session, *photo_and_mask(side))
                direct(engine, *photo_and_mask(side))
            latency = await measure_latency(session, engine)
            throughput = await measure_throughput(session, engine, seconds)
        return {"engine": repr(engine), "latency_512": latency, "throughput_256": throughput}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each round of throughput")
    options = parser.parse_args()
    figures = asyncio.run(run(options.seconds))
    text = json.dumps(figures, indent=2)
    if options.json:
        options.json.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
