"""Measures the cost of saving: p50 over HTTP with save=false, with saving, and with an Idempotency-Key as well.

    .venv/bin/python -m benchmarks.load.saving [--json FILE] [--rounds 100]

Two engines: the fake one with 8 ms per batch on 256², where most of the time is spent outside the engine; and the
shipped `photos` on 512² (JPEG in, PNG out). One request at a time, alternating between the three ways, so that a busy
machine slows all of them. benchmarks/disk measures how many results per second a disk can store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness.inputs import photo_and_mask
from benchmarks.harness.processes import retouch, retouch_is_ready

MODES = ("unsaved", "saved", "keyed")
ENGINES: dict[str, tuple[int, dict[str, str]]] = {
    "fake 8 ms 256²": (256, {"RETOUCH_ENGINE": "fake", "RETOUCH_FAKE_BATCH_MS": "8"}),
    "photos 512²": (512, {"RETOUCH_ENGINE": "auto"}),
}


async def post(session: aiohttp.ClientSession, mode: str, inputs: tuple[bytes, bytes]) -> float:
    """Send one inpaint; returns its seconds."""
    form = aiohttp.FormData({"save": "false" if mode == "unsaved" else "true"})
    form.add_field("image", inputs[0], filename="photo.jpg")
    form.add_field("mask", inputs[1], filename="mask.png")
    headers = {"Idempotency-Key": uuid.uuid4().hex} if mode == "keyed" else {}
    started = time.perf_counter()
    async with session.post("/v1/inpaint", data=form, headers=headers) as response:
        await response.read()
        assert response.status == 200, await response.text()
    return time.perf_counter() - started


async def measure(side: int, rounds: int) -> dict[str, float]:
    """Return the p50 of each mode in ms, and its ratio to that of unsaved requests."""
    inputs = photo_and_mask(side)
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder, retouch(Path(folder)) as server:
        await server.until_ready(retouch_is_ready)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            for number in range(rounds + 5):
                for mode in MODES[number % 3 :] + MODES[: number % 3]:
                    seconds = await post(session, mode, inputs)
                    if number >= 5:
                        times[mode].append(seconds)
    p50 = {mode: statistics.median(values) * 1e3 for mode, values in times.items()}
    return {**p50, **{f"{mode}/unsaved": p50[mode] / p50["unsaved"] for mode in MODES[1:]}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--rounds", type=int, default=100, help="number of rounds")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    print(f"{'p50, ms':16}" + "".join(f"{mode:>10}" for mode in MODES) + "  saved/unsaved")
    for engine, (side, environ) in ENGINES.items():
        os.environ.update(environ)
        values = figures[engine] = asyncio.run(measure(side, options.rounds))
        row = "".join(f"{values[mode]:10.2f}" for mode in MODES)
        print(f"{engine:16}{row}  {values['saved/unsaved']:.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
