"""Correctness steps of benchmarks/gpu/pipeline.py: arithmetic, races, memory growth, too large batches."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.bench import Bench, random_samples
from engines.base import BatchShape
from engines.cuda.api import Cuda, open_cuda
from engines.errors import EngineOutOfMemory
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.devices.contract import Tiles
from service.devices.cpu import CpuDevice
from service.devices.gpu_cvcuda import GpuPixels, TensorView, load_cvcuda
from service.devices.gpu_layout import batch_shape_of, lay_out_batch, padded_batch_sizes

_MIN_PIECE = 8 * 2**20
"""Bytes of the smallest piece that `fill` allocates; the memory left free may exceed `room` by this much."""


def arithmetic(bench: Bench) -> None:
    """Check that CV-CUDA computes what numpy does, with NaN and infinity; and time the largest batch."""
    cuda, pixels = open_cuda(), GpuPixels(load_cvcuda())
    bench.log_figures("arithmetic", gpu=cuda.device, cvcuda=load_cvcuda().__version__)
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (2, 32, 48, 3), np.uint8)
    floats = run_on_gpu(
        cuda, image, (2, 32, 48, 3), "float32", lambda t, s, stream: pixels.convert(t, s, stream, 1 / 255)
    )
    wanted = image * np.float32(1 / 255)
    planar = run_on_gpu(
        cuda,
        wanted,
        (2, 3, 32, 48),
        "float32",
        lambda t, s, stream: pixels.reformat(t._replace(layout="NCHW"), s, stream),
    )
    output = rng.uniform(-0.2, 1.2, (6, 32, 48, 1)).astype(np.float32)
    output.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 0.5]
    levels = run_on_gpu(cuda, output, output.shape, "uint8", lambda t, s, stream: pixels.convert(t, s, stream, 255.0))
    verdicts = run_on_gpu(
        cuda, output, output.shape, "uint8", lambda t, s, stream: pixels.convert(t, s, stream, 1e-37, 100.0)
    )
    counts = run_on_gpu(
        cuda,
        verdicts.reshape(2, 96, 48, 1),
        (2, 256, 1),
        "int32",
        lambda t, s, stream: pixels.histogram(t._replace(layout="HWC"), s, stream),
    )
    with np.errstate(invalid="ignore"):
        wanted_levels = np.rint(np.clip(output, 0, 1) * np.float32(255))
    finite = np.isfinite(output)
    bench.log_figures(
        "arithmetic",
        to_unit_max_difference=float(np.abs(floats - wanted).max()),
        reformat_equal=bool((planar == wanted.transpose(0, 3, 1, 2)).all()),
        levels_max_difference=float(np.abs(levels[finite] - wanted_levels[finite]).max()),
        verdicts=sorted(set(verdicts.ravel().tolist())),
        verdicts_right=bool(((verdicts >= 66) & (verdicts <= 134) == finite).all()),
        histogram_right=bool(
            (counts[..., 0] == [np.bincount(row.ravel(), minlength=256) for row in verdicts.reshape(2, -1)]).all()
        ),
    )
    assert (verdicts >= 66)[finite].all()
    assert not ((verdicts >= 66) & (verdicts <= 134))[~finite].any()


def run_on_gpu(
    cuda: Cuda,
    source: np.ndarray,
    shape: tuple[int, ...],
    dtype: str,
    work: Callable[[TensorView, TensorView, Any], None],
) -> np.ndarray:
    """Copy an array to the GPU, run one operation into memory that starts as zeros, and copy the result back."""
    stream = cuda.stream()
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    device_in, device_out = cuda.device_buffer(source.nbytes), cuda.device_buffer(nbytes)
    host_in, host_out = cuda.pinned_buffer(source.nbytes), cuda.pinned_buffer(nbytes)
    host_in.array(source.shape, str(source.dtype))[...] = source
    cuda.copy_in(device_in, host_in, source.nbytes, stream)
    cuda.clear(device_out, nbytes, stream)
    work(
        TensorView(device_out.address, shape, dtype),
        TensorView(device_in.address, source.shape, str(source.dtype)),
        stream,
    )
    cuda.copy_out(host_out, device_out, nbytes, stream)
    stream.synchronise()
    result = host_out.array(shape, dtype).copy()
    for thing in (device_in, device_out, host_in, host_out):  # not the stream: CV-CUDA has wrapped it
        thing.close()
    return result


@dataclass(frozen=True)
class Case:
    """A batch and its result on a synchronous device."""

    samples: list[Sample]
    wanted: Tiles


def cases(bench: Bench, count: int) -> list[Case]:
    """Make random batches of mixed sizes with references, computed one at a time from host arrays."""
    rng = np.random.default_rng(1)
    buckets = sorted(bench.manifest.size.tile_sizes())
    made = []
    for number in range(count):
        tile = Size(*buckets[number % len(buckets)])
        samples = random_samples(bench.manifest, rng, int(rng.integers(1, bench.arguments.max_batch + 1)), tile)
        made.append(Case(samples, CpuDevice().compute(bench.engine, samples)))
    return made


def differs(tiles: Tiles, wanted: Tiles) -> int:
    """Return the largest difference in levels; 999 if a tile is missing."""
    pairs = [(tile, other) for tile, other in zip(tiles, wanted, strict=True) if tile is not None and other is not None]
    if len(pairs) < len(wanted):
        return 999
    return max(int(np.abs(tile.astype(np.int16) - other).max()) for tile, other in pairs)


def reference(bench: Bench) -> None:
    """Check that overlapping random batches give the same tiles as a synchronous device."""
    known, chance = cases(bench, 12), random.Random(0)
    made = bench.device()
    worst, wrong, rows = 0, 0, 0
    waiting: list[tuple[Any, Case]] = []
    total = max(20, bench.arguments.batches // 5)
    for number in range(total + made.depth):
        if len(waiting) == made.depth or number >= total:
            ticket, case = waiting.pop(0)
            off = differs(made.collect(ticket), case.wanted)
            worst, wrong, rows = max(worst, off), wrong + (off > 1), rows + len(case.samples)
        if number < total:
            case = chance.choice(known)
            waiting.append((made.launch(bench.engine, case.samples), case))
    for ticket, case in waiting:
        off = differs(made.collect(ticket), case.wanted)
        worst, wrong, rows = max(worst, off), wrong + (off > 1), rows + len(case.samples)
    made.close()
    bench.log_figures("reference", batches=total, rows=rows, worst_level=worst, wrong_batches=wrong)
    assert wrong == 0


class _OverlappedBatches:
    """Launches batches while earlier ones run, and counts the ones whose results are wrong."""

    def __init__(self, bench: Bench) -> None:
        self._engine, self._device = bench.engine, bench.device()
        self._running: list[tuple[Any, Case]] = []
        self.wrong = 0

    def launch(self, case: Case) -> None:
        if len(self._running) == self._device.depth:
            self._check_oldest()
        self._running.append((self._device.launch(self._engine, case.samples), case))

    def close(self) -> None:
        while self._running:
            self._check_oldest()
        self._device.close()

    def _check_oldest(self) -> None:
        ticket, case = self._running.pop(0)
        self.wrong += differs(self._device.collect(ticket), case.wanted) > 1


def memory(bench: Bench) -> None:
    """Measure device and host memory over many batches of mixed sizes, after every shape was used once."""
    cuda, known, chance, library = open_cuda(), cases(bench, 12), random.Random(0), load_cvcuda()
    batches = _OverlappedBatches(bench)
    for case in [*known, *known, *known]:
        batches.launch(case)
    before: dict[str, Any] | None = None
    for number in range(bench.arguments.batches + 1):
        batches.launch(chance.choice(known))
        if number % max(1, bench.arguments.batches // 10) == 0:
            free, _ = cuda.call_runtime("cudaMemGetInfo")
            now = {
                "free_mb": round(free / 2**20, 1),
                "rss_mb": round(rss_mb(), 1),
                "cvcuda_items": library.cache_size(),
            }
            before = before or now
            bench.log_figures("memory", batch=number, wrong=batches.wrong, **now)
    batches.close()
    assert before is not None
    grown = {"device_mb": before["free_mb"] - now["free_mb"], "host_mb": round(now["rss_mb"] - before["rss_mb"], 1)}
    bench.log_figures("memory", batches=bench.arguments.batches, wrong=batches.wrong, grown=grown)
    assert batches.wrong == 0
    assert grown["device_mb"] <= 2
    assert grown["host_mb"] <= 64


def rss_mb() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def halving(bench: Bench) -> None:
    """Check that on an almost full GPU a batch is refused as too large and its parts are computed.

    Every size is computed once before, as the service does when it starts. A batch should take at least 128 MiB:
    whether a smaller one fits depends on how the GPU rounds allocations.
    """
    cuda = open_cuda()
    tile = Size(*bench.largest_tile)
    bench.engine.warm_up([BatchShape(rows, *tile) for rows in padded_batch_sizes(bench.arguments.max_batch)])
    samples = random_samples(bench.manifest, np.random.default_rng(2), bench.arguments.max_batch, tile)
    wanted = CpuDevice().compute(bench.engine, samples)
    made = bench.device(1)
    needed = sum(lay_out_batch(bench.manifest, batch_shape_of(samples)).sizes)
    room = min(96 * 2**20, needed // 2)
    refused: list[int] = []

    def compute(part: Sequence[Sample]) -> Tiles:
        try:
            return made.collect(made.launch(bench.engine, part))
        except EngineOutOfMemory:
            refused.append(len(part))
            if len(part) == 1:
                raise
            return [*compute(part[: len(part) // 2]), *compute(part[len(part) // 2 :])]

    try:
        with fill(cuda, room):
            worst = differs(compute(samples), wanted)
    finally:
        made.close()
    bench.log_figures("halving", needed_mb=needed >> 20, free_mb=room >> 20, refused=refused, worst_level=worst)
    assert refused
    assert worst <= 1


@contextmanager
def fill(cuda: Any, room: int) -> Iterator[None]:
    """Allocate all of the GPU's free memory except about `room` bytes, in pieces if it is fragmented."""
    with ExitStack() as taken:
        wanted = cuda.call_runtime("cudaMemGetInfo")[0] - room
        while wanted >= _MIN_PIECE:
            try:
                taken.enter_context(closing(cuda.device_buffer(wanted)))
            except EngineOutOfMemory:  # noqa: PERF203 -- the loop searches for the largest possible piece
                wanted //= 2
            else:
                wanted = min(wanted, cuda.call_runtime("cudaMemGetInfo")[0] - room)
        yield
