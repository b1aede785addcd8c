"""The pipeline: a request whose client has left is not computed, unless others may wait for the same picture."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.base import Feed
from engines.fake import FakeEngine, Fault, NotANumber, no_fault
from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service import pipeline
from service.admission.server_load import SingleFrontEndLoad
from service.app import Service, open_service
from service.batching.backend import BackendModel
from service.batching.local_backend import open_local_backend
from service.core.call import Call
from service.core.errors import Cancelled, InferenceFailed, NotReady
from service.core.order import Order
from service.core.schemas import TranslateOptions
from service.core.settings import Settings
from service.imaging.files import codec
from service.imaging.tasks import PreparedRequest, prepare_translate
from service.intake.presence import ClientPresence
from tests.serving.image_files import png
from tests.serving.tensor_specs import image, latent
from tests.serving.waiting import until

Faulty = Callable[[Feed], Fault | None]
Opened = Callable[..., AbstractAsyncContextManager[tuple[Service, FakeEngine]]]


@pytest.fixture
def opened(tmp_path: Path, add_model: Callable[..., Path]) -> Opened:
    """Open a service with one model: `async with opened(**settings) as (service, engine)`."""

    @asynccontextmanager
    async def open_one(fault: Faulty = no_fault, **more: Any) -> AsyncIterator[tuple[Service, FakeEngine]]:
        size = {"kind": "fixed", "height": 64, "width": 64}
        add_model(tmp_path / "models", "negative", "translate", size=size, inputs=[image(), latent()])
        engines: list[FakeEngine] = []

        def open_model(_: Path, manifest: Manifest) -> FakeEngine:
            engines.append(FakeEngine(manifest, fault=fault))
            return engines[0]

        places = {"models_dir": tmp_path / "models", "results_dir": tmp_path / "results"}
        chosen = {"engine": "fake", "save": False, "translate_model": "negative", **more}
        settings = Settings(**places, **chosen)
        async with open_service(settings, partial(open_local_backend, open_model=open_model)) as service:
            await service.backend.loaded.wait()
            yield service, engines[0]

    return open_one


def order(samples: int = 1) -> Order:
    options = TranslateOptions(format="png", samples=samples, seed=1)
    return Order("translate", {"image": png(np.zeros((64, 64, 3), np.uint8))}, options)


async def call(*, left: bool, repeat_key: str | None = None) -> Call:
    now = time.monotonic()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if left:
        gone.set_result(None)
    return Call(
        "1", now, now + 60, repeat_key=repeat_key, raise_if_disconnected=ClientPresence(gone).raise_if_disconnected
    )


async def test_the_engine_computes_for_clients_that_wait_and_not_for_those_that_left(opened: Opened) -> None:
    async with opened() as (service, engine):
        before = engine.samples
        with pytest.raises(Cancelled):
            await service.run(order(), await call(left=True))
        assert engine.samples == before
        await service.run(order(), await call(left=False))
        assert engine.samples == before + 1


async def test_with_a_result_cache_the_picture_is_computed_as_others_may_have_joined(opened: Opened) -> None:
    async with opened(cache_entries=10) as (service, engine):
        before = engine.samples
        reply = await service.run(order(), await call(left=True))
        assert (len(reply.pictures), engine.samples) == (1, before + 1)


async def test_threads_help_with_a_picture_only_while_cores_are_spare_and_change_nothing_of_it(opened: Opened) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (512, 512, 3), np.uint8)
    picture = Order("translate", {"image": png(pixels)}, TranslateOptions(format="jpeg"))
    async with opened(codec_threads=1) as (service, _):
        replies: list[bytes] = []
        helpers: list[int] = []
        for spare in (0, 3):
            service.backend.server_load = SingleFrontEndLoad(spare_cores=spare)
            before = set(threading.enumerate())
            replies.append((await service.run(picture, await call(left=False))).pictures[0].body)
            started = set(threading.enumerate()) - before
            helpers.append(sum(thread.name.startswith("help") for thread in started))
    assert helpers == [0, 3]
    assert replies[0] == replies[1]


class Held:
    """A function that waits in the middle of a request until `go_on` is set."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.begun.set()
        assert self.go_on.wait(30)
        return self._function(*args)


@pytest.mark.parametrize("repeat_key", ["key", None])
@pytest.mark.parametrize("samples", [1, 2])
async def test_a_request_that_is_cancelled_while_its_result_is_stored_is_answered_all_the_same(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, repeat_key: str | None, samples: int
) -> None:
    """By its deadline or by the end of its client, whose repeats get the answer: no result is stored for nobody."""
    monkeypatch.setattr(pipeline, "_STORE_S", 60.0)  # a loaded machine may write for longer than a second
    async with opened(save=True) as (service, _):
        held = Held(service.pipeline.store.put)
        monkeypatch.setattr(service.pipeline.store, "put", held)
        asked = asyncio.create_task(service.run(order(samples), await call(left=False, repeat_key=repeat_key)))
        await until(held.begun.is_set)
        asked.cancel()
        await asyncio.sleep(0)
        held.go_on.set()
        assert all(picture.result_id for picture in (await asked).pictures)


async def test_a_disk_that_hangs_delays_no_deadline_by_more_than_a_moment(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_STORE_S", 0.01)
    async with opened(save=True) as (service, _):
        held = Held(service.pipeline.store.put)
        monkeypatch.setattr(service.pipeline.store, "put", held)
        asked = asyncio.create_task(service.run(order(), await call(left=False)))
        await until(held.begun.is_set)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        held.go_on.set()


async def test_a_request_that_is_cancelled_when_its_write_fails_is_cancelled(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NotReady("the disk is full", code="storage_unavailable")

    async with opened(save=True) as (service, _):
        held = Held(fail)
        monkeypatch.setattr(service.pipeline.store, "put", held)
        asked = asyncio.create_task(service.run(order(), await call(left=False)))
        await until(held.begun.is_set)
        asked.cancel()
        await asyncio.sleep(0)
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asked


@pytest.mark.parametrize("repeat_key", ["key", None])
async def test_a_request_that_is_cancelled_before_has_nothing_stored(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repeat_key: str | None
) -> None:
    async with opened(save=True) as (service, _):
        held = Held(codec.encode)
        monkeypatch.setattr(codec, "encode", held)
        asked = asyncio.create_task(service.run(order(), await call(left=False, repeat_key=repeat_key)))
        await until(held.begun.is_set)
        asked.cancel()
        await asyncio.sleep(0)
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
    assert not list((tmp_path / "results").rglob("*.png"))


async def test_the_lease_of_a_client_that_leaves_while_its_version_loads_ends_on_the_event_loop(opened: Opened) -> None:
    """Where front ends and engine processes are apart, a lease ends with a message, which only the loop may send."""
    load, ended_on = Held(lambda: None), list[threading.Thread]()

    class Models:
        @contextmanager
        def lease(self, name: str, version: int | None = None) -> Iterator[BackendModel]:
            load()
            try:
                with loaded.lease(name, version) as model:
                    yield model
            finally:
                ended_on.append(threading.current_thread())

        def statuses(self) -> Sequence[ModelStatus]:
            return loaded.statuses()

    async with opened() as (service, _):
        loaded, service.pipeline.models = service.pipeline.models, Models()
        wanted = replace(order(), options=TranslateOptions(model="negative/1"))
        asked = asyncio.create_task(service.pipeline.run(wanted, await call(left=False)))
        await until(load.begun.is_set)
        asked.cancel()
        await asyncio.wait({asked})
        del asked
        load.go_on.set()
        await until(lambda: ended_on)
    assert ended_on == [threading.current_thread()]


@pytest.mark.usefixtures("no_collections")
async def test_a_request_whose_batch_failed_is_freed_without_a_garbage_collection(opened: Opened) -> None:
    faults: list[Fault] = []
    async with opened(lambda _: faults.pop() if faults else None) as (service, _):
        faults.append(NotANumber())
        its_call = await call(left=False)
        watched = weakref.ref(its_call.raise_if_disconnected)
        asked = asyncio.create_task(service.run(order(samples=3), its_call))
        await asyncio.wait({asked})
        assert isinstance(asked.exception(), InferenceFailed)
        del its_call, asked
        await until(lambda: watched() is None, 5)


async def test_nothing_more_is_encoded_ahead_for_a_request_that_has_failed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed request's memory is given to others."""
    first, later = Held(lambda: None), list[int]()
    strips: dict[range, Any] = {range(1): first, range(1, 2): partial(later.append, 1)}

    def prepare(*arguments: Any) -> PreparedRequest:
        return replace(prepare_translate(*arguments), strips=lambda: strips)

    monkeypatch.setattr(pipeline, "PREPARE", {"translate": prepare})
    picture = Order("translate", {"image": png(np.zeros((512, 512, 3), np.uint8))}, TranslateOptions(seed=1))

    def fail_once_a_strip_is_being_encoded(_: Feed) -> Fault:
        assert first.begun.wait(30)
        return NotANumber()

    async with opened(codec_threads=2) as (service, engine):
        engine.fault = fail_once_a_strip_is_being_encoded
        with pytest.raises(InferenceFailed):
            await service.run(picture, await call(left=False))
        first.go_on.set()
    assert not later
