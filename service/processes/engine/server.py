"""A process that owns one device: models, queue, device worker and supervisor, for all front ends.

It ends by itself: on SIGTERM or SIGHUP (the launcher's, or the kernel's when the launcher is gone) once no front end is
connected; with EXIT_DEVICE_LOST when its device is lost or hangs, so that the launcher starts another. Nobody is
answered then: front ends see the end and ask again, and a thread that hangs can write into no slot afterwards.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial

import structlog

from engines.errors import RetouchError
from service.batching.local_backend import LocalBackend, open_local_backend
from service.lifecycle.background import cancelled
from service.lifecycle.drain import EXIT_DEVICE_LOST
from service.lifecycle.hangup import hangup_signals
from service.processes.engine.leases import Offers
from service.processes.engine.page_locks import PageLocks, open_page_locks
from service.processes.engine.session import Session, failed
from service.processes.shared.assignment import Assignment
from service.processes.shared.channel import receive_greeting
from service.processes.shared.messages import Found, Vitals, Wanted
from service.processes.shared.slots import Memory
from service.processes.shared.status_board import Board, Row
from service.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 0.05
"""How often models and worker are looked at, and life is shown."""


class EngineDesk:
    """Takes in front ends and tells them of models and worker. Used on the event loop only."""

    def __init__(self, backend: LocalBackend, row: Row, page_locks: PageLocks) -> None:
        self._backend = backend
        self._row = row
        self._page_locks = page_locks
        self._offers = Offers(backend.models)
        self._sessions: set[Session] = set()
        self._count = 0
        self._known: object = None
        self._ready = False
        self._renewing = asyncio.Lock()
        backend.metrics.watch(backend.metrics.ready, lambda: self._ready)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def deserted(self) -> bool:
        """Whether no front end is connected."""
        return not any(session.connected for session in self._sessions)

    async def accept(self, listener: socket.socket) -> None:
        """Take in front ends as they come, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            try:
                await self._take_in(connection)
            except OSError as error:
                _log.warning("front end turned away", reason=str(error))
                connection.close()

    async def look(self) -> None:
        """Tell front ends what changed, show life, end when the device hangs; until cancelled."""
        while True:
            loaded = self._backend.loaded.is_set()  # what is offered below is all of it only if it was so before
            await self._renew()
            ready = loaded and self._backend.ready
            news, self._ready = ready != self._ready, ready
            self._row.ready, self._row.beat_at = ready, time.monotonic()
            self._backend.metrics.refresh()
            if news:  # written down before any front end can say it
                for session in self._sessions:
                    session.channel.send(Vitals(ready))
            await asyncio.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions):
            session.channel.close()
        self._offers.close()

    async def _take_in(self, connection: socket.socket) -> None:
        hello, descriptor = await asyncio.to_thread(receive_greeting, connection)
        try:
            memory = Memory(descriptor, hello.slots_bytes)
        finally:
            os.close(descriptor)
        await (
            self._backend.loaded.wait()
        )  # pages are locked when no model is being loaded, and nothing is served before
        locked = await asyncio.to_thread(self._page_locks.lock, memory)
        self._count += 1
        backend, offers = self._backend, self._offers
        session = Session(
            self._count, backend.batcher, offers, memory, locked, self._row, want=self._want, done=self._forget
        )
        self._sessions.add(session)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: session.channel, connection)
        self._offers.arrived(session.number)
        session.channel.send(self._offers.served())
        session.channel.send(Vitals(self._ready))
        _log.info("front end taken in", front_end=hello.front_end, locked=locked)

    async def _renew(self) -> None:
        async with self._renewing:
            known = (self._backend.models.statuses(), self._backend.supervisor.restarts)
            if known == self._known:
                return
            self._offers.renew(await asyncio.to_thread(self._offers.lease_ready))
            self._known = known
        served = self._offers.served()
        for session in self._sessions:
            session.channel.send(served)

    def _want(self, session: Session, wanted: Wanted) -> None:
        task = asyncio.get_running_loop().create_task(self._find(session, wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find(self, session: Session, wanted: Wanted) -> None:
        """Load a version that is not the newest; it stays loaded as the repository sees fit, and offered with it."""
        with ExitStack() as stack:
            lease = self._backend.models.lease(wanted.name, wanted.version)
            try:
                await asyncio.to_thread(stack.enter_context, lease)
            except RetouchError as error:
                session.channel.send(failed(wanted.id, error))
                return
            await self._renew()
            session.channel.send(Found(wanted.id))

    def _forget(self, session: Session) -> None:
        self._sessions.discard(session)
        self._page_locks.unlock(session.memory)


async def serve(assignment: Assignment) -> int:
    """Compute until the end; the process's exit status."""
    settings, ending = assignment.settings, asyncio.Event()
    row = Board(assignment.board, assignment.places).engine(assignment.index)
    replaces = row.begin(time.monotonic())
    metrics = Metrics(device=assignment.device)
    if replaces:  # counted here, as one that hangs or is killed can count nothing any more
        metrics.worker_restarts.inc()
    open_backend = partial(open_local_backend, settings, metrics, own_process=True)
    async with open_backend() as backend, _desk(backend, row, open_page_locks(settings.engine)) as desk:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, *hangup_signals()):
            loop.add_signal_handler(number, ending.set)
        async with AsyncExitStack() as stack:
            listener = socket.socket(fileno=assignment.listener)
            listener.setblocking(False)
            stack.callback(listener.close)
            for work in (desk.accept(listener), desk.look()):
                stack.push_async_callback(cancelled, asyncio.create_task(work))
            while not (ending.is_set() and desk.deserted) and not backend.lost.is_set():  # noqa: ASYNC110 -- three events
                await asyncio.sleep(_LOOK_EVERY_S)
        row.clear()
        if backend.lost.is_set():
            _log.error("the device is lost or hangs; this process ends")
            os._exit(EXIT_DEVICE_LOST)  # nothing can be freed on it, and a thread that hangs cannot be joined
    return 0


@asynccontextmanager
async def _desk(backend: LocalBackend, row: Row, page_locks: PageLocks) -> AsyncIterator[EngineDesk]:
    desk = EngineDesk(backend, row, page_locks)
    try:
        yield desk
    finally:
        desk.close()
