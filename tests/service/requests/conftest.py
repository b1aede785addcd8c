"""A worker on a device whose batches the test finishes one by one."""

from __future__ import annotations

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
from tests.fakes.clock import Clock
from tests.service.requests.overlap import Bench, Nobody, StepDevice


@pytest.fixture
def no_tracebacks() -> Iterator[None]:
    """Log without tracebacks: rendering one takes longer than these tests allow."""
    with capture_logs():
        yield


@pytest.fixture
def bench(fake_manifest: Callable[..., Manifest]) -> Any:
    manifest = fake_manifest("facades", "translate")
    clock, observed, reloaded = Clock(), Nobody(), list[Any]()
    batcher = Batcher(BatchPolicy(8), clock)
    devices: list[StepDevice] = []

    def start() -> DeviceWorker:
        devices.append(StepDevice())
        worker = DeviceWorker(batcher, devices[-1], observed, clock)
        worker.start()
        return worker

    supervisor = Supervisor(start, reloaded.append, clock, hang_timeout_s=0.2)
    model = ServedModel(manifest, FakeEngine(manifest))
    yield Bench(batcher, devices[0], model, observed, supervisor, reloaded, clock)
    batcher.close()
    for device in devices:
        for ticket in device.launched:
            ticket.finished.set()
    supervisor.worker.join(5)
