"""The overlapping device gives the tiles of the serial one, in whatever order the GPU runs its work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape
from engines.manifest import ONNX_FILE, Manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from service.batching.batcher import BatchPolicy
from service.batching.local_backend import warm_up_shapes
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.core.settings import Settings
from service.devices.contract import Tiles
from service.devices.cpu import CpuDevice
from service.devices.gpu import StreamEngine
from service.devices.gpu_layout import padded_batch_sizes
from service.processes.shared.slots import Memory, SlotLayouts
from tests.engines.conftest import SEVERAL_SAMPLES, several_samples_graph, tiny_manifest
from tests.fakes.cuda import FakeRuntime
from tests.fakes.tensor_rt import FakeTensorRt
from tests.service.devices.gpu_device import Gpu, MakeManifest, _arrays, assert_same, manifests, random_samples


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
    """Return copies of the samples in page-locked memory, as slots are in an engine process with a GPU."""
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
                ticket, needed = waiting.pop(int(rng.integers(len(waiting))))
                assert_same(gpu.device.collect(ticket), needed)
            waiting.append((gpu.device.launch(engine, samples), CpuDevice().compute(engine, samples)))
        for ticket, needed in waiting:
            assert_same(gpu.device.collect(ticket), needed)
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
    assert padded_batch_sizes(most) == sizes


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


def test_only_bytes_cross_the_bus(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    copied: list[int] = []
    copy = FakeRuntime.cudaMemcpyAsync

    def watched(target: int, source: int, nbytes: int, kind: int, stream: int) -> Any:
        copied.append(nbytes)
        return copy(gpu.runtime, target, source, nbytes, kind, stream)

    gpu.runtime.cudaMemcpyAsync = watched  # type: ignore[method-assign, assignment]
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

    def recorded(shape: BatchShape, stream: Any) -> None:
        enqueued.append(shape)
        enqueue(shape, stream)

    monkeypatch.setattr(engine, "enqueue", recorded)
    rng, tile = np.random.default_rng(0), Size(16, 16)
    for several in range(1, 9):
        for rows in range(1, BatchPolicy(max_batch).largest_batch(manifest.max_batch, several) + 1):
            samples = [Sample(tile, _arrays(manifest, rng, tile, several), several) for _ in range(rows)]
            tiles = gpu.device.collect(gpu.device.launch(engine, samples))
            assert_same(tiles, CpuDevice().compute(reference, samples))
    warmed = warm_up_shapes(Settings(max_batch_size=max_batch), engine)
    assert {shape for shape in enqueued if shape.samples == 1} <= set(warmed)
    engine.close()
