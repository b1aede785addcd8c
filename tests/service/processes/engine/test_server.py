"""An engine process: what it imports, and what its front ends can use while it loads models."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.errors import ModelNotFound
from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.processes.engine import server as engine_server
from tests.serving.waiting import until

ORDER = Sample(Size(64, 64), {"image": np.ones((64, 64, 3), np.uint8), "mask": np.eye(64, dtype=np.uint8)})


def photos_first(may_load: threading.Event) -> Callable[[Manifest], FakeEngine]:
    """Return what loads `photos` at once, and every other model once the event is set."""

    def load(manifest: Manifest) -> FakeEngine:
        assert manifest.name == "photos" or may_load.wait(20)
        return FakeEngine(manifest)

    return load


async def lose_engine_process(both: Any) -> None:
    """Serve all models with an engine process, and end it."""
    async with both.engine():
        await until(both.serves_all)
    await until(lambda: not both.front.ready)
    both.board.engine(0).clear_row()


def test_an_engine_process_imports_nothing_that_decodes_pictures() -> None:
    code = "import sys, service.processes.engine.server; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"simplejpeg", "PIL", "service.imaging.files"}.isdisjoint(imported)


async def test_a_loaded_model_serves_front_ends_while_others_still_load(pair: Callable[..., Any]) -> None:
    may_load = threading.Event()
    async with pair() as both, both.engine(fake=photos_first(may_load)) as engine:
        await until(lambda: both.front.ready and bool(both.front.clients[0].models))
        with both.front.models.lease("photos") as model:
            assert (await both.front.batcher.submit(ORDER, model, time.monotonic() + 20)).tile.shape == (64, 64, 3)
        with pytest.raises(ModelNotFound):
            both.front.models.lease("facades").__enter__()
        assert not both.front.loaded.is_set()
        assert not both.board.front_end(0).ready
        assert both.board.ready_engines == 0
        may_load.set()
        await until(both.serves_all)
        assert {status.name for status in both.front.models.statuses()} == {"facades", "photos"}
        assert both.board.front_end(0).ready
        assert engine.backend.loaded.is_set()


async def test_the_models_of_a_lost_engine_process_stay_known_until_its_replacement_has_loaded_all(
    pair: Callable[..., Any],
) -> None:
    may_load = threading.Event()
    async with pair() as both:
        await lose_engine_process(both)
        async with both.engine(fake=photos_first(may_load)) as engine:
            await until(lambda: len(engine.backend.models.statuses()) == 1)
            with both.front.models.lease("facades"):
                assert not both.front.ready
            may_load.set()
            await until(both.serves_all)


async def test_a_front_end_that_starts_while_another_waits_for_a_replacement_gets_its_loaded_models_at_once(
    pair: Callable[..., Any],
) -> None:
    may_load = threading.Event()
    async with pair() as both:
        await lose_engine_process(both)
        async with both.engine(fake=photos_first(may_load)) as engine:
            await asyncio.sleep(0.2)  # the first front end has connected again and waits
            async with both.second_front() as started:
                await until(lambda: started.ready and bool(started.clients[0].models))
                with started.models.lease("photos") as model:
                    tile = (await started.batcher.submit(ORDER, model, time.monotonic() + 20)).tile
                assert tile.shape == (64, 64, 3)
                assert not both.front.ready
                may_load.set()
                await until(both.serves_all)
            assert engine.backend.loaded.is_set()


async def test_a_front_end_that_waits_for_a_replacement_which_ends_is_served_by_the_next(
    pair: Callable[..., Any],
) -> None:
    may_load = threading.Event()
    async with pair() as both:
        await lose_engine_process(both)
        async with both.engine(fake=photos_first(may_load)):
            await asyncio.sleep(0.2)  # the front end has connected again and waits
        may_load.set()
        async with both.engine():
            await until(both.serves_all)


async def test_an_older_version_is_served_while_another_engine_process_still_loads(
    pair: Callable[..., Any], add_model: Callable[..., Path], models_dir: Path
) -> None:
    add_model(models_dir, "photos", "inpaint", version=2)
    may_load = threading.Event()

    def load(manifest: Manifest) -> FakeEngine:
        assert may_load.wait(20)
        return FakeEngine(manifest)

    async with pair(engines=2) as both, both.engine(1, fake=load), both.engine(0):
        await until(lambda: both.serves_all() and all(client.ready for client in both.front.clients))
        with ExitStack() as stack:
            model = await asyncio.to_thread(stack.enter_context, both.front.models.lease("photos", 1))
            assert model.manifest.version == 1
        may_load.set()


async def test_a_replacement_is_known_to_front_ends_only_with_all_its_models(
    pair: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = threading.Event()

    def load(manifest: Manifest) -> FakeEngine:
        assert may_load.wait(20)
        return FakeEngine(manifest)

    def knows_all() -> bool:
        for name in ("facades", "photos"):
            both.front.models.lease(name).__enter__()
        return bool(both.front.ready)

    async with pair() as both:
        await lose_engine_process(both)
        monkeypatch.setattr(engine_server, "_POLL_INTERVAL_S", 0.5)
        async with both.engine(fake=load) as engine:
            await asyncio.sleep(0.1)  # the models are offered the next time half a second later
            may_load.set()
            await until(engine.backend.loaded.is_set)
            await until(knows_all)
