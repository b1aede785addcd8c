"""The speed of the GPU's path for pictures: pictures a second and CPU time, by lanes and batch, and the CPU's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import count

import numpy as np

from benchmarks.gpu_pictures.cases import Case, plan_work, stand_in_fills
from benchmarks.gpu_pictures.checks import TIMEOUT_S
from service.devices.pictures.lane_pool import LanePool
from service.imaging.files.hardware_jpeg import is_sound


def cpu_stages(cases: Sequence[Case], seconds: float) -> dict[str, float]:
    """Return the CPU time of each stage that the GPU would take over, in ms a picture, on one core."""
    spent = dict.fromkeys(("decode and cut", "seam and paste", "check of the file", "plan for the GPU"), 0.0)
    done, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until or not done:
        case = cases[done % len(cases)]
        marks = [time.thread_time()]
        upload, samples = case.samples_by_cpu()
        marks.append(time.thread_time())
        fills = stand_in_fills([tile for tile, _ in samples])
        marks.append(time.thread_time())
        case.paste_by_cpu(upload, fills)
        marks.append(time.thread_time())
        is_sound(case.data)
        marks.append(time.thread_time())
        plan_work(case.data, case.mask, case.crops, case.manifest)
        marks.append(time.thread_time())
        for stage, took in zip(spent, (0, 2, 3, 4), strict=True):
            spent[stage] += marks[took + 1] - marks[took]
        done += 1
    return {stage: round(1e3 * took / done, 3) for stage, took in spent.items()}


def pool_speed(pool: LanePool, cases: Sequence[Case], *, clients: int, seconds: float) -> dict[str, float]:
    """Return pictures a second through the pool, CPU time a picture with its lanes, and latencies of both halves."""
    took: list[tuple[float, float]] = []
    until, began_cpu, began = time.perf_counter() + seconds, time.process_time(), time.perf_counter()

    def client(number: int) -> None:
        case = cases[number % len(cases)]
        assert case.work is not None
        tiles, masks, result = case.new_arrays()
        fills = stand_in_fills(tiles)
        for turn in count():
            start = time.perf_counter()
            if turn and start >= until:
                break
            picture = pool.begin(case.work, tiles, masks)
            picture.cut.result(TIMEOUT_S)
            cut_at = time.perf_counter()
            picture.paste(fills, result).result(TIMEOUT_S)
            took.append((cut_at - start, time.perf_counter() - cut_at))
            picture.end()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began
    cut_ms, paste_ms = (1e3 * np.percentile([pair[half] for pair in took], (50, 99)) for half in (0, 1))
    return {
        "a_second": round(len(took) / wall_s),
        "cpu_ms": round(1e3 * (time.process_time() - began_cpu) / len(took), 3),
        "cut_ms_p50": round(float(cut_ms[0]), 3),
        "cut_ms_p99": round(float(cut_ms[1]), 3),
        "paste_ms_p50": round(float(paste_ms[0]), 3),
        "paste_ms_p99": round(float(paste_ms[1]), 3),
    }
