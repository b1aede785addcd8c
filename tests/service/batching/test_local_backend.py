"""The supervision of the device worker: in this process, or left to the launcher of an engine process."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.base import BatchShape, Feed, Outputs
from engines.errors import DeviceLost
from engines.fake import FakeEngine, Raise
from engines.feeds import batch_shape
from engines.load_report import LoadReport
from engines.repository.repository import ModelRepository
from service.app import open_pipeline
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.local_backend import LocalBackend, open_local_backend
from service.batching.supervisor import Supervisor
from service.core.settings import Settings
from service.lifecycle.background import run_in_background
from service.telemetry.metrics import Metrics
from tests.fakes.captured_logs import capture_logs
from tests.fakes.lanes import FakeLaneEngine
from tests.serving.fake_models import fake_manifest, write_model
from tests.serving.waiting import until


class BeginsToHang:
    """A worker whose state is `busy` at the first look and `hung` from the second on."""

    def __init__(self) -> None:
        self.device_lost = None
        self.looks = 0
        self.given_up = 0

    def state(self, _now: float, _hang_timeout_s: float) -> str:
        self.looks += 1
        return "busy" if self.looks == 1 else "hung"

    def abandon(self) -> list[Any]:
        self.given_up += 1
        return []


def backend_of(supervisor: Supervisor, folder: Path, own_process: bool) -> LocalBackend:
    """Return a backend without models."""
    models = ModelRepository(folder, lambda *_: None)  # type: ignore[arg-type,return-value]
    batcher = Batcher(BatchPolicy(8), lambda: 0.0)
    return LocalBackend(Settings(), models, batcher, supervisor, Metrics(), own_process)


@pytest.mark.parametrize(("own_process", "given_up"), [(True, 0), (False, 1)])
async def test_a_worker_that_begins_to_hang_between_two_checks_is_replaced_only_in_a_shared_process(
    tmp_path: Path, own_process: bool, given_up: int
) -> None:
    hanging, fresh = BeginsToHang(), SimpleNamespace(device_lost=None, state=lambda *_: "idle")
    workers: list[Any] = [hanging, fresh]
    supervisor = Supervisor(lambda: workers.pop(0), lambda _: None, lambda: 0.0, 60.0)
    backend = backend_of(supervisor, tmp_path, own_process)
    supervising = asyncio.create_task(backend.supervise())
    for _ in range(6000):
        if backend.lost.is_set() or supervisor.restarts:
            break
        await asyncio.sleep(0.01)
    supervising.cancel()
    assert (hanging.given_up, backend.lost.is_set()) == (given_up, own_process)


async def test_a_worker_whose_replacement_could_not_be_started_is_replaced_later(tmp_path: Path) -> None:
    workers: list[Any] = [BeginsToHang(), None, SimpleNamespace(device_lost=None, state=lambda *_: "idle")]

    def start() -> Any:
        if (worker := workers.pop(0)) is None:
            raise RuntimeError("can't start new thread")
        return worker

    supervisor = Supervisor(start, lambda _: None, lambda: 0.0, 60.0)
    backend = backend_of(supervisor, tmp_path, own_process=False)
    async with run_in_background(backend.supervise()):
        await until(lambda: supervisor.restarts, 10)
    assert supervisor.ready


async def test_batches_of_every_size_are_warmed_up_on_all_lanes(models_dir: Path, tmp_path: Path) -> None:
    warmed: dict[str, list[BatchShape]] = {}

    class Recording(FakeLaneEngine):
        def infer(self, feed: Feed) -> Outputs:
            warmed.setdefault(self.manifest.name, []).append(batch_shape(self.manifest, feed))
            return super().infer(feed)

    settings = Settings(models_dir=models_dir, results_dir=tmp_path / "results")
    async with open_local_backend(settings, Metrics(), lambda _, manifest: Recording(manifest, lanes=3)) as backend:
        await backend.loaded.wait()
        statuses = backend.models.statuses()
        assert {served.name for served in statuses} == {"photos", "facades"}
        for served in statuses:
            assert served.manifest is not None
            buckets = served.manifest.size.tile_sizes()
            assert warmed[served.name] == [BatchShape(rows, *bucket) for bucket in buckets for rows in (1, 3)]


async def test_the_end_of_a_process_does_not_wait_for_models_that_are_not_loaded_yet(
    models_dir: Path, tmp_path: Path
) -> None:
    steps: list[str] = []

    class SlowReport(LoadReport):
        def step(self, text: str) -> None:
            super().step(text)
            steps.append(text)
            if "shape 1 of" in text:
                loop.call_soon_threadsafe(warming_up.set)
                resume.wait(30)

    warming_up, resume, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()
    settings = Settings(models_dir=models_dir, results_dir=tmp_path / "results", engine="fake")
    with capture_logs() as logs:
        async with open_local_backend(settings, Metrics(), report=SlowReport()):
            await asyncio.wait_for(warming_up.wait(), 30)
        resume.set()
        await loop.shutdown_default_executor()
    assert [line["model"] for line in logs if line["event"] == "model loading"] == ["photos/1"]
    assert [text.partition(" of ")[0] for text in steps] == ["opening fake", "warming up fake, shape 1"]
    assert not [line for line in logs if line["event"] == "model refused"]


LOST = DeviceLost("the GPU context is lost; start the process again")


def fails_its_warm_up(error: Exception) -> Any:
    return lambda _, manifest: FakeEngine(manifest, fault=lambda _feed: Raise(error))


@pytest.mark.parametrize("own_process", [True, False])
async def test_a_device_that_is_lost_while_a_model_warms_up_ends_the_process(
    models_dir: Path, tmp_path: Path, own_process: bool
) -> None:
    settings = Settings(models_dir=models_dir, results_dir=tmp_path / "results")
    open_backend = partial(open_local_backend, settings, Metrics(), fails_its_warm_up(LOST), own_process=own_process)
    async with open_backend() as backend:
        await asyncio.wait_for(backend.lost.wait(), 30)
        assert not backend.loaded.is_set()


async def test_a_pipeline_without_a_server_raises_when_the_device_is_lost(models_dir: Path, tmp_path: Path) -> None:
    settings = Settings(models_dir=models_dir, results_dir=tmp_path / "results")
    backend = partial(open_local_backend, open_model=fails_its_warm_up(LOST))

    async def use() -> None:
        async with open_pipeline(settings, backend):
            pass

    with pytest.raises(DeviceLost, match="start the process again"):
        await asyncio.wait_for(use(), 30)


def test_a_scan_lists_each_folder_once_and_reports_misnamed_ones(tmp_path: Path) -> None:
    write_model(tmp_path, fake_manifest("photos", "inpaint"))
    write_model(tmp_path, fake_manifest("facades", "translate")).rename(tmp_path / "facades/v1")
    listed: list[Any] = []

    def count(_frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in ("scandir", "listdir"):
            listed.append(function)

    async def scanned() -> LocalBackend:
        settings = Settings(models_dir=tmp_path, engine="fake", model_poll_s=3600)
        async with open_local_backend(settings, Metrics()) as backend:
            await backend.loaded.wait()
            threading.setprofile(count)
            sys.setprofile(count)
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # a new thread is profiled, too
            try:
                await backend.scan()
            finally:
                threading.setprofile(None)
                sys.setprofile(None)
        return backend

    backend = asyncio.run(scanned())
    assert backend.misnamed == {tmp_path / "facades/v1"}
    assert len(listed) == len(["models", "facades", "facades/v1", "photos", "photos/1"])
