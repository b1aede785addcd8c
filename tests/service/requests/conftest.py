"""A worker on a device whose batches the test finishes one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.supervisor import Supervisor
from service.batching.worker import DeviceWorker
from tests.fakes.captured_logs import capture_logs
from tests.service.requests.overlap import Bench, Nobody, StepDevice


@pytest.fixture
def no_tracebacks() -> Iterator[None]:
    """Log without tracebacks: rendering one takes longer than these tests allow."""
    with capture_logs():
        yield


@pytest.fixture
def bench(fake_manifest: Callable[..., Manifest]) -> Any:
    manifest = fake_manifest("facades", "translate")
    batcher, observed, reloaded = Batcher(BatchPolicy(8), time.monotonic), Nobody(), list[Any]()
    devices: list[StepDevice] = []

    def start() -> DeviceWorker:
        devices.append(StepDevice())
        worker = DeviceWorker(batcher, devices[-1], observed, time.monotonic)
        worker.start()
        return worker

    supervisor = Supervisor(start, reloaded.append, time.monotonic, hang_timeout_s=0.2)
    yield Bench(batcher, devices[0], ServedModel(manifest, FakeEngine(manifest)), observed, supervisor, reloaded)
    batcher.close()
    for device in devices:
        for ticket in device.launched:
            ticket.finished.set()
    supervisor.worker.join(5)
