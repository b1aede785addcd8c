"""Compares a CPU in lanes with one batch at a time: pictures/s and latencies of the shipped inpainting model.

    .venv/bin/python -m benchmarks.host.cpu_lanes [--rounds 6] [--seconds 6] [--side 256] [--json FILE]

Without HTTP, JPEG in and out, `strategy=whole`, nothing saved. Three variants: `lanes`, as in the service; `batches`
of up to 8, whose halves the engine computes in parallel; `single`, one picture at a time with all threads. Every
measurement opens a new pipeline; the order rotates from round to round. Measured: one caller, 16 callers, and an open
loop at 50 and 85 % of the rate of the lanes with 16 callers in a first trial. Ratios are relative to the lanes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.inputs import ROOT, photo_and_mask
from benchmarks.harness.ratios import print_ratios, ratio_of
from benchmarks.versions.direct_calls import closed_loop, open_loop, percentile_ms
from retouch.bench.load import run_on_uvloop
from service.app import open_pipeline
from service.batching.local_backend import make_routing_device, open_local_backend
from service.core.call import Call
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.core.settings import Settings
from service.devices.contract import Device, SerialDevice
from service.devices.cpu import CpuDevice
from service.telemetry.logs import configure_logs

VARIANTS = ("lanes", "batches", "single")
CALLERS = 16
Figures = dict[str, float]


def device_of(variant: str) -> Callable[[Callable[[], None]], Device]:
    """Return the function that opens the device of one variant."""
    return make_routing_device if variant == "lanes" else lambda _: SerialDevice(CpuDevice())


@asynccontextmanager
async def pipeline_of(variant: str, side: int, folder: Path) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
    """Open a pipeline that computes in one of the variants."""
    settings = Settings.model_validate(
        {
            "models_dir": ROOT / "models",
            "results_dir": folder / variant,
            "engine_cache_dir": ROOT / "cache",
            "engine": "openvino",
            "max_batch_size": 1 if variant == "single" else 8,
            "log_level": "error",
        }
    )
    configure_logs(settings)
    photo, mask = photo_and_mask(side)
    options = InpaintOptions.model_validate({"format": "jpeg", "strategy": "whole", "save": False})
    order = Order("inpaint", {"image": photo, "mask": mask}, options)
    opened = partial(open_local_backend, open_device=device_of(variant), only={"photos"})
    async with open_pipeline(settings, opened) as pipeline:

        async def call() -> bool:
            now = pipeline.clock()
            return bool((await pipeline.run(order, Call("bench", now, now + 60.0))).pictures)

        yield call


async def rate_of(variant: str, side: int, seconds: float, folder: Path) -> float:
    """Return the pictures per second with all callers."""
    async with pipeline_of(variant, side, folder) as call:
        await closed_loop(call, CALLERS, 1.0)
        return (await closed_loop(call, CALLERS, seconds))[0] / seconds


async def visit(variant: str, side: int, seconds: float, rate: float, folder: Path) -> Figures:
    """Measure one variant."""
    found: Figures = {}
    async with pipeline_of(variant, side, folder) as call:
        await closed_loop(call, CALLERS, 1.0)
        done, _ = await closed_loop(call, 1, seconds / 2)
        found["alone ms"] = seconds / 2 * 1e3 / done
        done, _ = await closed_loop(call, CALLERS, seconds)
        found["16 callers /s"] = done / seconds
        for share in (0.5, 0.85):
            latencies, _ = await open_loop(call, share * rate, seconds)
            found[f"p50 ms at {share:.0%}"] = percentile_ms(latencies, 0.5)
            found[f"p99 ms at {share:.0%}"] = percentile_ms(latencies, 0.99)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="number of rounds, at least 3")
    parser.add_argument("--seconds", type=float, default=6.0, help="seconds of each load")
    parser.add_argument("--side", type=int, default=256, help="side of the picture in pixels")
    parser.add_argument("--json", type=Path, help="write all visits there")
    options = parser.parse_args()
    figures: dict[str, list[Figures]] = {variant: [] for variant in VARIANTS}
    with TemporaryDirectory(prefix="retouch-lanes-") as name:
        folder = Path(name)
        rate = run_on_uvloop(rate_of("lanes", options.side, options.seconds, folder))
        for number in range(options.rounds):
            for variant in (*VARIANTS[number % 3 :], *VARIANTS[: number % 3]):
                figures[variant].append(run_on_uvloop(visit(variant, options.side, options.seconds, rate, folder)))
                print(
                    f"{number + 1} of {options.rounds}, {variant}: {figures[variant][-1]}", file=sys.stderr, flush=True
                )
    ratios = {
        variant: {
            name: ratio_of(*([one[name] for one in figures[side]] for side in ("lanes", variant)))
            for name in figures[variant][0]
        }
        for variant in VARIANTS[1:]
    }
    for variant, rows in ratios.items():
        print_ratios(f"{options.side}², {variant} over lanes", ("lanes", variant), rows)
    if options.json:
        summary = {variant: {name: asdict(row) for name, row in rows.items()} for variant, rows in ratios.items()}
        options.json.write_text(json.dumps({"rate": rate, "summary": summary, "visits": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
