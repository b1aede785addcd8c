"""The overlapping device with failing values, sizes, launches or a lost GPU."""

from __future__ import annotations

import numpy as np
import pytest

from engines.base import BatchShape
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.devices.cpu import CpuDevice
from tests.fakes.cuda import Status
from tests.service.devices.gpu_device import Gpu, MakeManifest, assert_same, manifests, random_samples


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


def test_more_batches_than_slots_are_refused(gpu: Gpu, fake_manifest: MakeManifest) -> None:
    engine = gpu.engine(manifests(fake_manifest)["translate"])
    samples = random_samples(engine.manifest, np.random.default_rng(9), 1)
    tickets = [gpu.device.launch(engine, samples) for _ in range(gpu.device.depth)]
    with pytest.raises(EngineFailed, match="collect a batch first"):
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
