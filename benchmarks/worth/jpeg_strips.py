"""Compares the steps of one request in parallel with the same steps one after the other.

    .venv/bin/python -m benchmarks.worth.jpeg_strips [--sides 256 512 1024 2048] [--threads 2] [--rounds 30]

Three ways to encode a photograph as JPEG: in one pass, in strips on one thread, in strips on `--threads`; and decoding
an image and its mask one after the other and in parallel. A request that is alone on the machine gains the difference
in time; under load no thread is free to help, and strips cost their additional CPU time. Printed, medians over
interleaved rounds: milliseconds, CPU time, and the size of the file.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import cv2
import numpy as np
import simplejpeg
from rich.console import Console
from rich.table import Table

from benchmarks.harness.inputs import photo_and_mask
from service.imaging.files import codec
from service.imaging.files.jpeg import encode_jpeg
from service.imaging.pool.parallel_steps import HelperThreads, StepRunner, run_one_by_one

MAX_PIXELS = 10**9
Work = Callable[[], int]
"""Does the work once; returns the bytes."""


def ways_of(side: int, helpers: StepRunner) -> dict[str, Work]:
    """Return the ways to encode and decode a photograph of `side`²."""
    photo, mask = photo_and_mask(side)
    pixels = np.ascontiguousarray(codec.decode(photo, max_pixels=MAX_PIXELS).pixels)

    def decoded(side_by_side: StepRunner) -> int:
        steps: list[Callable[[], object]] = [
            lambda: codec.decode(photo, max_pixels=MAX_PIXELS),
            lambda: codec.decode_mask(mask, "white", max_pixels=MAX_PIXELS),
        ]
        return len(side_by_side(steps))

    return {
        "encode in one pass": lambda: len(simplejpeg.encode_jpeg(pixels, 90, "RGB", "444")),
        "encode strips one by one": lambda: len(encode_jpeg(pixels, 90, "444", run_one_by_one)),
        "encode strips in parallel": lambda: len(encode_jpeg(pixels, 90, "444", helpers)),
        "decode image and mask one by one": lambda: decoded(run_one_by_one),
        "decode image and mask in parallel": lambda: decoded(helpers),
    }


def measured(work: Work, repeats: int) -> tuple[float, float, int]:
    """Return milliseconds and milliseconds of processor time, each of one run, and the bytes."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        size = work()
    return (time.perf_counter() - wall) * 1e3 / repeats, (time.process_time() - cpu) * 1e3 / repeats, size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument(
        "--threads", type=int, default=2, help="threads, including the caller's; the others are always free"
    )
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    helpers = HelperThreads(options.threads - 1, lambda: options.threads - 1)
    table = Table("picture", "way", "ms", "CPU ms", "bytes")
    for side in options.sides:
        ways = ways_of(side, helpers.run_with_helpers)
        repeats = max(1, 2048**2 // side**2 // 4)
        seen: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
        for number in range(options.rounds):
            for name in list(ways)[:: 1 if number % 2 else -1]:
                seen[name].append(measured(ways[name], repeats))
        for name, values in seen.items():
            wall, cpu, size = (statistics.median(column) for column in zip(*values, strict=True))
            table.add_row(f"{side}²", name, f"{wall:.3f}", f"{cpu:.3f}", f"{size:.0f}")
    helpers.close()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
