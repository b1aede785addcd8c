"""The intake: a client that leaves after its results are stored and before its answer; a deadline given twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from service.app import Service, open_service
from service.batching.local_backend import open_local_backend
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.core.settings import Settings
from service.intake.intake import Arrival, Intake, admitted
from service.repeats.response_files import StoredResponse


class Conversion:
    """An API's work: it computes an order's pictures, and waits for the test before it builds the response."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, intake: Intake, body: bytes) -> StoredResponse:
        await intake.run(self._order)
        self.begun.set()
        await self.go_on.wait()
        return StoredResponse(200, (), body)

    async def ask(self, service: Service, body: bytes) -> bytes:
        with admitted(service, Arrival("1", "address:127.0.0.1", None, 5), Intake) as intake:
            await intake.receive_body(asyncio.sleep(0))
            once = partial(intake.run_idempotent, "key", self._order, (), partial(self, intake, body))
            return bytes((await intake.run_until_deadline(once)).body)


@pytest.mark.parametrize(("saved", "again"), [(True, b"first"), (False, b"second")])
async def test_a_client_that_disconnects_keeps_its_key_once_its_results_are_stored(
    tmp_path: Path, models_dir: Path, photo: bytes, mask: bytes, saved: bool, again: bytes
) -> None:
    order = Order("inpaint", {"image": photo, "mask": mask}, InpaintOptions(save=saved))
    settings = Settings(models_dir=models_dir, results_dir=tmp_path / "results", engine="fake")
    async with open_service(settings, open_local_backend) as service:
        await service.backend.loaded.wait()
        conversion = Conversion(order)
        left = asyncio.create_task(conversion.ask(service, b"first"))
        await conversion.begun.wait()
        left.cancel()
        await asyncio.sleep(0)
        conversion.go_on.set()
        with suppress(asyncio.CancelledError):
            await left
        assert await conversion.ask(service, b"second") == again


@pytest.mark.parametrize(
    ("of_header_s", "of_body_s", "allowed_s"),
    [(2.0, 9.0, 2.0), (9.0, 2.0, 2.0), (9.0, None, 9.0), (None, 200.0, 200.0)],
)
async def test_the_shorter_of_a_clients_two_deadlines_applies(
    tmp_path: Path, models_dir: Path, of_header_s: float | None, of_body_s: float | None, allowed_s: float
) -> None:
    settings = Settings(models_dir=models_dir, results_dir=tmp_path / "results", engine="fake")
    async with open_service(settings, open_local_backend) as service:
        await service.backend.loaded.wait()
        with admitted(service, Arrival("1", "address:127.0.0.1", of_header_s, 5), Intake) as intake:
            intake.take_timeout_and_priority(of_body_s, None)
            assert (intake.allowed_s, intake.deadline_from_client) == (allowed_s, True)
