"""A front end's backend and an engine process's server, both in the test's process, on a real socket and real slots."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.batching.local_backend import LocalBackend, OpenDevice, open_local_backend
from service.core.settings import Settings
from service.lifecycle.background import cancel_and_wait
from service.processes.engine.page_locks import NoPageLocks
from service.processes.engine.server import EngineServer
from service.processes.front_end.backend import RemoteBackend, open_remote_backend
from service.processes.shared.assignment import Assignment
from service.processes.shared.code_version import code_version
from service.processes.shared.status_board import RowCounts, StatusBoard, make_board
from service.telemetry.metrics import Metrics


@dataclass
class Engine:
    """The engine process's side while it runs."""

    backend: LocalBackend
    server: EngineServer
    fakes: list[FakeEngine]


@dataclass
class Pair:
    """Both sides; `engine(index)` starts an engine process's side, `second_front()` another front end."""

    front: RemoteBackend
    board: StatusBoard
    engine: Callable[..., Any]
    second_front: Callable[[], Any]

    def serves_all(self) -> bool:
        """Whether the front end knows all models of a ready engine process."""
        return self.front.loaded.is_set() and self.front.ready


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A path to a socket has at most 107 bytes, and pytest's own folders are long."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


@pytest.fixture
def pair(models_dir: Path, short_folder: Path) -> Callable[..., Any]:
    """Connected front end and engine processes: `async with pair(engines=1, **settings) as pair`."""

    @asynccontextmanager
    async def make(
        engines: int = 1, slots_bytes: int = 2**20, cores_for_pictures: int = 0, **changes: Any
    ) -> AsyncIterator[Pair]:
        settings = Settings.model_validate(
            {"models_dir": models_dir, "model_poll_s": 0.05, "engine": "fake", **changes}
        )
        row_counts = RowCounts(2, engines)  # for two front ends, as a test may act as the other one
        descriptor = make_board(row_counts)
        paths = [short_folder / f"{index}.sock" for index in range(engines)]
        listeners = []
        for path in paths:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen()
            listener.setblocking(False)
            listeners.append(listener)
        assignment = Assignment(
            code=code_version(),
            role="front_end",
            index=0,
            launcher=os.getpid(),
            settings=settings,
            sockets=tuple(map(str, paths)),
            board=descriptor,
            front_ends=2,
            engines=engines,
            listener=-1,
            cores_for_pictures=cores_for_pictures,
        )
        board = StatusBoard(descriptor, row_counts)

        @asynccontextmanager
        async def engine(
            index: int = 0,
            fake: Callable[[Manifest], FakeEngine] = FakeEngine,
            open_device: OpenDevice | None = None,
        ) -> AsyncIterator[Engine]:
            fakes: list[FakeEngine] = []

            def open_model(_: Path, manifest: Manifest) -> FakeEngine:
                fakes.append(fake(manifest))
                return fakes[-1]

            async with open_local_backend(settings, Metrics(), open_model, open_device, own_process=True) as backend:
                server = EngineServer(backend, board.engine(index), NoPageLocks())
                tasks = [
                    asyncio.create_task(work) for work in (server.accept(listeners[index]), server.announce_changes())
                ]
                yield Engine(backend, server, fakes)
                for task in tasks:
                    await cancel_and_wait(task)
                await server.close()

        async with AsyncExitStack() as stack:
            for listener in listeners:
                stack.callback(listener.close)
            stack.callback(os.close, descriptor)
            front = await stack.enter_async_context(open_remote_backend(assignment, settings, Metrics(), slots_bytes))
            second = assignment.model_copy(update={"index": 1})
            yield Pair(front, board, engine, lambda: open_remote_backend(second, settings, Metrics(), slots_bytes))

    return make
