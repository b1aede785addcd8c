"""The overlapping device against the one that computes at once: the same tiles, whatever order the GPU chooses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape
from engines.cuda.api import Cuda
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory
from engines.manifest import ONNX_FILE, Manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from service.batching.batcher import BatchPolicy
from service.batching.local_backend import warm_up_shapes
from service.core.pictures import Size
from service.core.samples import Sample
from service.core.settings import Settings
from service.devices.contract import Tiles
from service.devices.cpu import CpuDevice
from service.devices.gpu import GpuDevice, StreamEngine
from service.devices.gpu_cvcuda import GpuPixels
from service.devices.gpu_layout import padded_sizes
from service.processes.shared.slots import Memory, SlotLayouts
from tests.engines.conftest import SEVERAL_SAMPLES, several_samples_graph, tiny_manifest
from tests.fakes.cuda import FakeRuntime, Status
from tests.fakes.gpu import FakeCvCuda, FakeStreamEngine, RacingRuntime
from tests.fakes.tensor_rt import FakeTensorRt

MOST = BatchShape(8, 64, 64)
PIXELS = ["batch", 3, "height", "width"]
MakeManifest = Callable[..., Manifest]


@dataclass
class Gpu:
    """A device, and what it stands on."""

    runtime: RacingRuntime
    cvcuda: FakeCvCuda
    cuda: Cuda
    device: GpuDevice

    def engine(self, manifest: Manifest, most: BatchShape = MOST) -> FakeStreamEngine:
        return FakeStreamEngine(manifest, self.cuda, most)


@pytest.fixture
def open_gpu() -> Callable[..., Gpu]:
    def start(seed: int = 0, **options: Any) -> Gpu:
        runtime = RacingRuntime(seed)
        cuda, cvcuda = Cuda(runtime), FakeCvCuda(runtime)
        return Gpu(runtime, cvcuda, cuda, GpuDevice(cuda, GpuPixels(cvcuda), **options))

    return start


@pytest.fixture
def gpu(open_gpu: Callable[..., Gpu]) -> Gpu:
    return open_gpu()


def manifests(make: MakeManifest) -> dict[str, Manifest]:
    """Every kind of input and output that the contract has."""
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    image = {"name": "image", "dtype": "float32", "shape": PIXELS}
    mask = {"name": "mask", "dtype": "float32", "shape": ["batch", 1, "height", "width"]}
    label = {"name": "label", "dtype": "uint8", "shape": ["batch", 1, "height", "width"], "classes": 7}
    instance = {"name": "instance", "dtype": "int32", "shape": ["batch", 1, "height", "width"]}
    grey = {"dtype": "float32", "shape": ["batch", 1, "height", "width"]}
    together = {"name": "latent", "dtype": "float32", "shape": ["batch", "samples", 8]}
    several = {"name": "output", "dtype": "float32", "shape": ["batch", "samples", 3, "height", "width"]}
    fixed = {"kind": "fixed", "height": 32, "width": 64}
    return {
        "inpaint": make("inpaint", "inpaint", size={"kind": "multiple", "multiple_of": 8, "sides": [16, 24, 64]}),
        "translate": make("translate", "translate"),
        "grey": make("grey", "translate", inputs=[{"name": "image", **grey}], output={"name": "output", **grey}),
        "generate": make("generate", "generate", inputs=[latent], size=fixed),
        "label": make("label", "translate", inputs=[label, instance]),
        "diverse": make("diverse", "inpaint", inputs=[image, mask, together], output=several),
    }


def random_samples(manifest: Manifest, rng: np.random.Generator, batch: int) -> list[Sample]:
    buckets = [bucket for bucket in manifest.size.buckets() if max(bucket) <= 64]
    tile = Size(*buckets[rng.integers(len(buckets))])
    several = 2 if manifest.samples_together else 1
    return [Sample(tile, _arrays(manifest, rng, tile, several), several) for _ in range(batch)]


def _arrays(manifest: Manifest, rng: np.random.Generator, tile: Size, several: int) -> dict[str, np.ndarray]:
    kinds: dict[str, Callable[[], np.ndarray]] = {
        "image": lambda: rng.integers(0, 256, (*tile, manifest.image_channels), np.uint8),
        "mask": lambda: rng.integers(0, 2, tile, np.uint8),
        "label": lambda: rng.integers(0, 7, tile, np.uint8),
        "instance": lambda: rng.integers(0, 70000, tile, np.int32),
        "latent": lambda: rng.standard_normal((several, 8) if manifest.samples_together else 8, np.float32),
    }
    return {spec.name: kinds[spec.name]() for spec in manifest.inputs}


def assert_same(tiles: Tiles, wanted: Tiles) -> None:
    assert len(tiles) == len(wanted)
    for tile, reference in zip(tiles, wanted, strict=True):
        assert tile is not None
        assert reference is not None
        assert tile.dtype == np.uint8
        assert tile.shape == reference.shape
        assert np.abs(tile.astype(int) - reference.astype(int)).max() <= 1


@pytest.mark.parametrize("kind", ["inpaint", "translate", "grey", "generate", "label", "diverse"])
def test_tiles_of_every_kind_of_model_are_those_of_the_cpu(gpu: Gpu, fake_manifest: MakeManifest, kind: str) -> None:
    engine = gpu.engine(manifests(fake_manifest)[kind], BatchShape(8, 64, 64, 2 if kind == "diverse" else 1))
    assert isinstance(engine, StreamEngine)
    rng = np.random.default_rng(1)
    for batch in (1, 3, 4):
        samples = random_samples(engine.manifest, rng, batch)
        tiles = gpu.device.collect(gpu.device.launch(engine, samples))
        assert_same(tiles, CpuDevice().compute(engine, samples))


def locked_copies(manifest: Manifest, samples: list[Sample]) -> list[Sample]:
    """The same samples in slots, as an engine process sees them on a GPU."""
    layouts, size = SlotLayouts(manifest), (*samples[0].tile, samples[0].samples)
    layout = layouts.of(*size)
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, layout.nbytes * len(samples))
    memory = Memory(descriptor, layout.nbytes * len(samples))
    os.close(descriptor)
    placed = [memory.sample(n * layout.nbytes, layout, size, locked=True) for n in range(len(samples))]
    for one, sample in zip(placed, samples, strict=True):
        for name, array in sample.arrays.items():
            one.arrays[name][...] = array
    return placed


@pytest.mark.parametrize("kind", ["inpaint", "translate", "grey", "generate", "label", "diverse"])
def test_samples_in_page_locked_slots_are_read_and_written_where_they_lie(
    gpu: Gpu, fake_manifest: MakeManifest, kind: str
) -> None:
    engine = gpu.engine(manifests(fake_manifest)[kind], BatchShape(8, 64, 64, 2 if kind == "diverse" else 1))
    rng = np.random.default_rng(5)
    for batch in (1, 3, 4):
        samples = random_samples(engine.manifest, rng, batch)
        placed = locked_copies(engine.manifest, samples)
        tiles = gpu.device.collect(gpu.device.launch(engine, placed))
        assert_same(tiles, CpuDevice().compute(engine, samples))
        assert all(tile is one.into for tile, one in zip(tiles, placed, strict=True))


def test_a_batch_of_which_only_some_samples_are_page_locked_is_computed_too(
    gpu: Gpu, fake_manifest: MakeManifest
) -> None:
    engine = gpu.engine(manifests(fake_manifest)["inpaint"])
    samples = random_samples(engine.manifest, np.random.default_rng(6), 3)
    mixed = [*locked_copies(engine.manifest, samples[:2]), samples[2]]
    assert_same(gpu.device.collect(gpu.device.launch(engine, mixed)), CpuDevice().compute(engine, samples))


@pytest.mark.slow
def test_a_thousand_random_batches_in_flight_together_equal_a_synchronous_reference(
    open_gpu: Callable[..., Gpu], fake_manifest: MakeManifest
) -> None:
    rng = np.random.default_rng(2)
    for seed in range(10):
        gpu = open_gpu(seed, depth=int(rng.integers(1, 5)))
        made = [gpu.engine(manifest, BatchShape(8, 64, 64, 2)) for manifest in manifests(fake_manifest).values()]
        waiting: list[tuple[Any, Tiles]] = []
        for _ in range(100):
            engine = made[rng.integers(len(made))]
            samples = random_samples(engine.manifest, rng, int(rng.integers(1, 5)))
            if len(waiting) == gpu.device.depth:
                ticket, wanted = waiting.pop(int(rng.integers(len(waiting))))
                assert_same(gpu.device.collect(ticket), wanted)
            waiting.append((gpu.device.launch(engine, samples), CpuDevice().compute(engine, samples)))
        for ticket, wanted in waiting:
            assert_same(gpu.device.collect(ticket), wanted)
        gpu.device.close()


def test_batches_are_padded_to_few_sizes_and_what_pads_them_is_a_sample_and_not_returned(
    gpu: Gpu, fake_manifest: MakeManifest
) -> None:
    engine = gpu.engine(manifests(fake_manifest)["label"], BatchShape(8, 64, 128))
    rng = np.random.default_rng(14)
    for batch in range(1, 9):
        samples = random_samples(engine.manifest, rng, batch)
        assert_same(gpu.device.collect(gpu.device.launch(engine, samples)), CpuDevice().compute(engine, samples))
    assert [shape.batch for shape in engine.enqueued] == [1, 2, 3, 4, 6, 6, 8, 8]


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (32, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]), (5, [1, 2, 3, 4, 5])],
)
def test_sizes_go_up_to_the_largest_batch(most: int, sizes: list[int]) -> None:
    assert padded_sizes(most) == sizes


def test_memory_stops_growing_once_every_slot_has_seen_the_engine(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    engine = gpu.engine(manifests(fake_manifest)["inpaint"])
    rng = np.random.default_rng(3)

    def compute(batch: int) -> None:
        gpu.device.collect(gpu.device.launch(engine, random_samples(engine.manifest, rng, batch)))

    for _ in range(gpu.device.depth):
        compute(1)
    held = dict(gpu.runtime.memory)
    for batch in (8, 1, 5, 8):
        compute(batch)
    assert gpu.runtime.memory == held


def test_wrapped_tensors_are_kept_and_bounded(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    engine = gpu.engine(manifests(fake_manifest)["inpaint"])
    samples = random_samples(engine.manifest, np.random.default_rng(4), 2)
    for _ in range(gpu.device.depth):
        gpu.device.collect(gpu.device.launch(engine, samples))
    wrapped = gpu.cvcuda.wrapped
    for _ in range(2 * gpu.device.depth):
        gpu.device.collect(gpu.device.launch(engine, samples))
    assert gpu.cvcuda.wrapped == wrapped
    gpu.device._pixels.max_tensors = 4
    gpu.device.collect(gpu.device.launch(engine, samples[:1]))
    assert len(gpu.device._pixels._tensors) <= wrapped + 1


def test_closing_gives_everything_back(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    engine = gpu.engine(manifests(fake_manifest)["inpaint"])
    gpu.device.launch(engine, random_samples(engine.manifest, np.random.default_rng(5), 2))
    gpu.device.close()
    engine.close()
    assert gpu.runtime.alive == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_loses_its_row_alone(gpu: Gpu, fake_manifest: MakeManifest, bad: float) -> None:
    engine = gpu.engine(manifests(fake_manifest)["inpaint"])
    samples = random_samples(engine.manifest, np.random.default_rng(6), 3)
    engine.poison.append(bad)
    tiles = gpu.device.collect(gpu.device.launch(engine, samples))
    assert tiles[0] is None
    assert_same(tiles[1:], CpuDevice().compute(engine, samples)[1:])
    assert_same(gpu.device.collect(gpu.device.launch(engine, samples)), CpuDevice().compute(engine, samples))


@pytest.mark.parametrize("large", [3.4e38, -3.4e38, 70000.0])
def test_large_values_are_clamped_and_no_error(gpu: Gpu, fake_manifest: MakeManifest, large: float) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    engine.poison.append(large)
    (tile,) = gpu.device.collect(
        gpu.device.launch(engine, random_samples(engine.manifest, np.random.default_rng(7), 1))
    )
    assert tile is not None
    assert tile[0, 0, 0] == (255 if large > 0 else 0)


def test_a_ticket_is_done_when_its_tiles_are_on_the_host(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    gpu.runtime._eagerness = 0
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    samples = random_samples(engine.manifest, np.random.default_rng(8), 1)
    ticket = gpu.device.launch(engine, samples)
    assert not ticket.done
    gpu.runtime.advance(10_000)
    assert ticket.done
    assert_same(gpu.device.collect(ticket), CpuDevice().compute(engine, samples))
    assert gpu.device.busy_s > 0


def test_more_batches_than_slots_are_refused(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    samples = random_samples(engine.manifest, np.random.default_rng(9), 1)
    tickets = [gpu.device.launch(engine, samples) for _ in range(gpu.device.depth)]
    with pytest.raises(EngineFailed, match="collect one first"):
        gpu.device.launch(engine, samples)
    for ticket in tickets:
        gpu.device.collect(ticket)


def test_a_batch_larger_than_the_engine_is_refused_before_its_memory_is_written(
    gpu: Gpu, fake_manifest: MakeManifest
) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"], BatchShape(2, 64, 64))
    with pytest.raises(EngineFailed, match="a batch of 3 tiles of 64×64; the engine's memory holds 2"):
        gpu.device.launch(engine, [Sample(Size(64, 64), {"image": np.zeros((64, 64, 3), np.uint8)})] * 3)
    assert gpu.cvcuda.calls == []


@pytest.mark.parametrize("error", [EngineFailed("no"), EngineOutOfMemory("full"), RuntimeError("a bug")])
def test_a_launch_that_fails_gives_its_slot_back(gpu: Gpu, fake_manifest: MakeManifest, error: Exception) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    samples = random_samples(engine.manifest, np.random.default_rng(10), 2)
    for _ in range(2 * gpu.device.depth):
        engine.refuse.append(error)
        with pytest.raises(type(error), match=str(error)):
            gpu.device.launch(engine, samples)
    gpu.cvcuda.fail["reformat"] = RuntimeError("NVCV_ERROR_INTERNAL")
    with pytest.raises(RuntimeError, match="NVCV"):
        gpu.device.launch(engine, samples)
    assert_same(gpu.device.collect(gpu.device.launch(engine, samples)), CpuDevice().compute(engine, samples))


def test_an_error_of_the_library_on_a_lost_context_is_the_death_of_the_engine(
    gpu: Gpu, fake_manifest: MakeManifest
) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    gpu.cvcuda.fail["convertto"] = RuntimeError("cudaErrorIllegalAddress")
    gpu.runtime.fail["cudaStreamSynchronize"] = Status.cudaErrorIllegalAddress
    with pytest.raises(EngineDead, match="context is lost"):
        gpu.device.launch(engine, random_samples(engine.manifest, np.random.default_rng(11), 1))


def test_death_while_computing_shows_when_collecting(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    ticket = gpu.device.launch(engine, random_samples(engine.manifest, np.random.default_rng(12), 1))
    gpu.runtime.fail["cudaEventSynchronize"] = Status.cudaErrorIllegalAddress
    with pytest.raises(EngineDead):
        gpu.device.collect(ticket)


def test_slots_for_the_largest_batch_are_given_up_where_only_smaller_ones_fit(
    gpu: Gpu, fake_manifest: MakeManifest
) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"], BatchShape(8, 128, 128))
    samples = random_samples(engine.manifest, np.random.default_rng(13), 1)
    used = sum(memoryview(buffer).nbytes for buffer in gpu.runtime.memory.values())
    gpu.runtime.memory_limit = used + 600_000
    assert_same(gpu.device.collect(gpu.device.launch(engine, samples)), CpuDevice().compute(engine, samples))
    gpu.runtime.memory_limit = used
    with pytest.raises(EngineOutOfMemory):
        gpu.device.launch(engine, samples)


def test_only_bytes_cross_the_bus(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    copied: list[int] = []
    copy = FakeRuntime.cudaMemcpyAsync

    def watched(target: int, source: int, nbytes: int, kind: int, stream: int) -> Any:
        copied.append(nbytes)
        return copy(gpu.runtime, target, source, nbytes, kind, stream)

    gpu.runtime.cudaMemcpyAsync = watched  # type: ignore[method-assign]
    engine = gpu.engine(manifests(fake_manifest)["inpaint"])
    image, mask = np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64), np.uint8)
    samples = [Sample(Size(64, 64), {"image": image, "mask": mask})] * 2
    gpu.device.collect(gpu.device.launch(engine, samples))
    pixels = 2 * 64 * 64
    assert copied == [pixels * 4, pixels * 3 + 2 * 256 * 4]


@pytest.mark.parametrize("max_batch", range(1, 10))
def test_every_batch_of_a_model_with_several_samples_a_row_fits_its_plan_and_was_warmed_up(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_batch: int
) -> None:
    graph = several_samples_graph()
    (tmp_path / ONNX_FILE).write_bytes(graph)
    manifest = tiny_manifest(onnx_sha256=hashlib.sha256(graph).hexdigest(), max_batch=32, **SEVERAL_SAMPLES)
    library, options = FakeTensorRt(gpu.runtime).library(), BuildOptions(max_batch=max_batch)
    engine = TrtEngine(tmp_path, manifest, library=library, cuda=gpu.cuda, cache_dir=tmp_path, options=options)
    reference = OnnxRuntimeEngine(tmp_path, manifest, threads=1)
    enqueued: list[BatchShape] = []
    enqueue = engine.enqueue
    monkeypatch.setattr(engine, "enqueue", lambda shape, stream: (enqueued.append(shape), enqueue(shape, stream)))
    rng, tile = np.random.default_rng(0), Size(16, 16)
    for several in range(1, 9):
        for rows in range(1, BatchPolicy(max_batch).size(manifest.max_batch, several) + 1):
            samples = [Sample(tile, _arrays(manifest, rng, tile, several), several) for _ in range(rows)]
            tiles = gpu.device.collect(gpu.device.launch(engine, samples))
            assert_same(tiles, CpuDevice().compute(reference, samples))
    warmed = warm_up_shapes(Settings(max_batch_size=max_batch), engine)
    assert {shape for shape in enqueued if shape.samples == 1} <= set(warmed)
    engine.close()
