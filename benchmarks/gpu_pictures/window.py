"""Verifies and times the GPU's path for pictures on a GPU; each finding is printed and written as it comes.

    python -m benchmarks.gpu_pictures.window kernels requests faults speed --jpegs DIR [--json OUT.jsonl]

kernels: one picture at a time, all kinds of files. requests: many under way together, a tenth given up, growth of
memory. faults: a GPU whose memory is taken. speed: pictures a second by lanes and batch, alone and beside matrix
products, and the CPU time of the stages that it takes over.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu.matrix_products import MatrixProducts
from benchmarks.gpu_pictures.cases import KINDS, Case, make_cases
from benchmarks.gpu_pictures.checks import OpenLanePool, compare
from benchmarks.gpu_pictures.speed import cpu_stages, pool_speed
from engines.cuda.api import Cuda, open_cuda
from engines.cuda.quick_calls import open_quick_calls
from engines.manifest import Manifest
from service.devices.pictures.kernels import NvrtcKernels
from service.devices.pictures.lane_pool import LanePool
from service.devices.pictures.lane_thread import LaneOptions
from service.devices.pictures.nvjpeg import open_hardware_lane, open_nvjpeg

Say = Callable[[str, Any], None]
_LIMIT_S = 150.0
"""Limit of a step, so that its rows are written before the host's time is over."""
_ON_GPU = tuple(kind for kind in KINDS if kind.startswith("4:"))


def check_kernels(open_lane_pool: OpenLanePool, files: list[Path], manifest: Manifest, say: Say, count: int) -> None:
    """Compare one picture at a time."""
    with _opened(open_lane_pool) as pool:
        for kind, row in compare(pool, make_cases(files, manifest, count), limit_s=_LIMIT_S).items():
            say(f"kernels, {kind}", asdict(row))
        say("kernels, pool", pool.broken or "works")


def check_requests(
    open_lane_pool: OpenLanePool,
    files: list[Path],
    manifest: Manifest,
    say: Say,
    count: int,
    free_bytes: Callable[[], int],
) -> None:
    """Compare many pictures under way together, a tenth given up; memory is read ten times."""
    process, every, started = psutil.Process(), max(1, count // 10), time.perf_counter()

    def heartbeat(done: int) -> None:
        if done % every == 0:
            facts = {"host_mib": process.memory_info().rss >> 20, "gpu_free_mib": free_bytes() >> 20}
            say(f"requests, after {done}", {**facts, "s": round(time.perf_counter() - started, 1)})

    with _opened(open_lane_pool, lanes=4) as pool:
        cases = make_cases(files, manifest, count, seed=1)
        rows = compare(pool, cases, threads=14, give_up=0.1, limit_s=_LIMIT_S, heartbeat=heartbeat)
        for kind, row in rows.items():
            say(f"requests, {kind}", asdict(row))
        say("requests, answered", [sum(row.cases for row in rows.values()), count])
        say("requests, pool", pool.broken or "works")


def check_faults(open_lane_pool: OpenLanePool, files: list[Path], manifest: Manifest, say: Say, cuda: Cuda) -> None:
    """Compare while all but a few MB of the GPU's memory are taken, and once more when they are given back."""
    with _opened(open_lane_pool, lanes=2) as pool:
        free, _ = cuda.call_runtime("cudaMemGetInfo")
        taken = cuda.device_buffer(max(1, int(free) - (24 << 20)))
        for when in ("memory taken", "memory given back"):
            rows = compare(pool, make_cases(files, manifest, 48, _ON_GPU, seed=2), threads=8)
            total = {kind: asdict(row) for kind, row in rows.items()}
            say(f"faults, {when}", total)
            taken.close()
        say("faults, pool", pool.broken or "works")


def measure_speed(
    open_lane_pool: OpenLanePool, cases: dict[str, list[Case]], say: Say, seconds: float, *, busy: bool
) -> None:
    """Measure sizes, lanes and batches; the CPU's stages first."""
    for name, some in cases.items():
        say(f"speed, {name}, CPU's stages, ms", cpu_stages(some, seconds))
        for lanes, batch, clients in ((1, 1, 1), (1, 4, 16), (2, 4, 32), (4, 4, 64), (4, 8, 64)):
            about = f"speed, {name}, lanes {lanes}, batch {batch}, clients {clients}"
            with _opened(open_lane_pool, lanes=lanes, batch=batch) as pool:
                pool_speed(pool, some, clients=clients, seconds=seconds / 8)
                say(about, pool_speed(pool, some, clients=clients, seconds=seconds))
                if busy:
                    say(f"{about}, beside products", _beside_products(pool, some, clients, seconds))


def _beside_products(pool: LanePool, cases: list[Case], clients: int, seconds: float) -> dict[str, float]:
    with MatrixProducts() as products:
        before, started = products.done, time.perf_counter()
        time.sleep(seconds / 2)
        alone = (products.done - before) / (time.perf_counter() - started)
        before, started = products.done, time.perf_counter()
        row = pool_speed(pool, cases, clients=clients, seconds=seconds)
        kept = (products.done - before) / (time.perf_counter() - started) / alone
    return {**row, "products_keep": round(kept, 3)}


@contextmanager
def _opened(open_lane_pool: OpenLanePool, **options: int) -> Iterator[LanePool]:
    pool = open_lane_pool(**options)
    try:
        yield pool
    finally:
        pool.close()


def _open_lane_pool(
    cuda: Cuda, open_lane: Callable[[Cuda], Any], lanes: int = 1, batch: int = 4, pictures: int = 32
) -> LanePool:
    return LanePool(cuda, lanes, LaneOptions(open_lane, batch, pictures, time.monotonic))


def speed_cases(files: list[Path], manifest: Manifest) -> dict[str, list[Case]]:
    """Return pictures of 512² and 256², 4:2:0, for the GPU."""
    wanted: dict[str, list[Case]] = {"512²": [], "256²": []}
    for make in make_cases(files, manifest, 400, ("4:2:0",), seed=3):
        case = make()
        height, width = case.mask.shape
        cases = wanted.get(f"{height}²" if height == width else "", [])
        if case.work is not None and len(cases) < 16:
            cases.append(case)
    return {name: cases for name, cases in wanted.items() if cases}


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="+", choices=("kernels", "requests", "faults", "speed"))
    parser.add_argument("--jpegs", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--manifest", type=Path, default=Path("models/photos/5/manifest.json"))
    parser.add_argument("--count", type=int, default=0, help="cases of `kernels` (700) or of `requests` (10,000)")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--alone", action="store_true", help="no matrix products, which need torch")
    parser.add_argument("--json", type=Path, default=Path("gpu_pictures.jsonl"))
    return parser.parse_args()


def main() -> None:
    """Run the steps in order."""
    arguments = parse()
    files = sorted(path for path in arguments.jpegs.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
    manifest = Manifest.model_validate_json(arguments.manifest.read_text())

    def say(name: str, value: Any) -> None:
        print(name, json.dumps(value), flush=True)
        with arguments.json.open("a") as file:
            file.write(json.dumps([name, value]) + "\n")

    cuda, began = open_cuda(), time.perf_counter()
    quick_calls = open_quick_calls()
    nvjpeg, kernels = open_nvjpeg(), NvrtcKernels(cuda, quick_calls)
    say("opened", {"gpu": cuda.device.name, "s": round(time.perf_counter() - began, 2), "files": len(files)})
    open_lane = partial(open_hardware_lane, nvjpeg=nvjpeg, kernels=kernels, quick_calls=quick_calls)
    open_lane_pool = partial(_open_lane_pool, cuda, open_lane)

    def free_bytes() -> int:
        cuda.make_current()  # any thread asks
        return int(cuda.call_runtime("cudaMemGetInfo")[0])

    for step in arguments.steps:
        if step == "kernels":
            check_kernels(open_lane_pool, files, manifest, say, arguments.count or 700)
        elif step == "requests":
            check_requests(open_lane_pool, files, manifest, say, arguments.count or 10_000, free_bytes)
        elif step == "faults":
            check_faults(open_lane_pool, files, manifest, say, cuda)
        else:
            cases = speed_cases(files, manifest)
            measure_speed(open_lane_pool, cases, say, arguments.seconds, busy=not arguments.alone)


if __name__ == "__main__":
    main()
