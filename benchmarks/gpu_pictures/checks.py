"""The GPU's path for pictures against the CPU's: differences by kind of file, and whether all are answered."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu_pictures.cases import Case, stand_in_fills
from engines.errors import EngineError
from service.devices.pictures.lane_pool import LanePool

TIMEOUT_S = 30.0


@dataclass(slots=True)
class Differences:
    """The cases of one kind: how many went which way, and the largest differences in levels."""

    cases: int = 0
    on_gpu: int = 0
    on_cpu: int = 0
    refused_by_cpu: int = 0
    refused_by_gpu: int = 0
    given_up: int = 0
    planned_though_refused: int = 0
    tile_levels: int = 0
    result_levels: int = 0
    pixels_differ: int = 0
    """Pixels of results that differ at all, of all cases together."""
    masks_differ: int = 0
    outside_differ: int = 0
    """Results that differ outside the mask at all."""
    errors: dict[str, int] = field(default_factory=dict)


def compare(
    pool: LanePool,
    cases: Iterable[Callable[[], Case]],
    *,
    threads: int = 1,
    give_up: float = 0.0,
    limit_s: float = float("inf"),
    heartbeat: Any = None,
) -> dict[str, Differences]:
    """Run cases through the pool and the CPU's code, from several threads; return the differences by kind.

    Args:
        pool: the GPU's.
        cases: make cases of any kinds.
        threads: how many cases are under way together.
        give_up: the share of cases whose client leaves at once.
        limit_s: no case is begun after so many seconds.
        heartbeat: called after each case with the number of cases done.
    """
    rows: dict[str, Differences] = defaultdict(Differences)
    lock, done = threading.Lock(), [0]
    waiting, until = _Shared(iter(cases)), time.perf_counter() + limit_s

    def work() -> None:
        while time.perf_counter() < until and (make := waiting.next()) is not None:
            case = make()
            row = _compare_one(pool, case, give_up)
            with lock:
                _add(rows[case.kind], row)
                done[0] += 1
                if heartbeat is not None:
                    heartbeat(done[0])

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return dict(rows)


class _Shared:
    """An iterator that several threads draw from."""

    def __init__(self, source: Iterator[Callable[[], Case]]) -> None:
        self._source, self._lock = source, threading.Lock()

    def next(self) -> Callable[[], Case] | None:
        with self._lock:
            return next(self._source, None)


def _compare_one(pool: LanePool, case: Case, give_up: float) -> Differences:
    row = Differences(cases=1)
    if case.refused:
        row.refused_by_cpu, row.planned_though_refused = 1, int(case.work is not None)
        return row
    if case.work is None:
        upload, samples = case.samples_by_cpu()
        case.paste_by_cpu(upload, stand_in_fills([tile for tile, _ in samples]))
        row.on_cpu = 1
        return row
    tiles, masks, result = case.new_arrays()
    picture = pool.begin(case.work, tiles, masks)
    try:
        if random.random() < give_up:
            row.given_up = 1
            return row
        picture.cut.result(TIMEOUT_S)
        fills = stand_in_fills(tiles)
        picture.paste(fills, result).result(TIMEOUT_S)
    except EngineError as error:
        row.refused_by_gpu, row.errors = 1, {str(error): 1}
        return row
    finally:
        picture.end().result(TIMEOUT_S)
    row.on_gpu = 1
    upload, samples = case.samples_by_cpu()
    expected = case.paste_by_cpu(upload, fills)
    row.tile_levels = max(_levels(tile, image) for tile, (image, _) in zip(tiles, samples, strict=True))
    row.masks_differ = sum(not np.array_equal(ours, mask) for ours, (_, mask) in zip(masks, samples, strict=True))
    row.result_levels = _levels(result, expected)
    row.pixels_differ = int((result != expected).any(axis=2).sum())
    row.outside_differ = int(not np.array_equal(result[~case.mask], expected[~case.mask]))
    return row


def _levels(ours: Any, theirs: Any) -> int:
    return int(np.abs(ours.astype(np.int16) - theirs).max())


def _add(total: Differences, one: Differences) -> None:
    largest = {"tile_levels", "result_levels"}
    for name in Differences.__slots__:
        ours, theirs = getattr(total, name), getattr(one, name)
        if name == "errors":
            for error, count in theirs.items():
                ours[error] = ours.get(error, 0) + count
        else:
            setattr(total, name, max(ours, theirs) if name in largest else ours + theirs)


OpenLanePool = Callable[..., LanePool]
