"""A process that owns one device: models, queue, device worker and supervisor, for all front ends.

After SIGTERM or SIGHUP, which comes from the launcher or, once the launcher is gone, from the kernel, it ends as soon
as no front end is connected. If its device is lost or hangs, it exits with EXIT_DEVICE_LOST without answering its
samples: front ends notice the lost connection and submit them again, and the launcher starts another process.
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
from service.admission.service_rate import ServiceRate
from service.batching.local_backend import LocalBackend, open_local_backend
from service.lifecycle.background import cancel_and_wait, run_to_completion_on_thread
from service.lifecycle.drain import EXIT_DEVICE_LOST
from service.lifecycle.end_limit import END_WITHIN_S, end_within
from service.lifecycle.patient_threads import use_patient_threads
from service.lifecycle.sighup import hangup_signals
from service.processes.engine.leases import ModelOffers
from service.processes.engine.load import EngineLoad
from service.processes.engine.page_locks import PageLocks, open_page_locks
from service.processes.engine.session import Session, encode_error
from service.processes.shared.assignment import Assignment
from service.processes.shared.channel import receive_greeting
from service.processes.shared.messages import Readiness, RequestVersion, VersionOffered
from service.processes.shared.slots import Memory
from service.processes.shared.status_board import StatusBoard, StatusRow
from service.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)

_POLL_INTERVAL_S = 0.05
"""Interval in seconds at which models and the device worker are checked and the heartbeat is written."""


class EngineServer:
    """Accepts front ends, and announces models and readiness to them. Used on the event loop only."""

    def __init__(self, backend: LocalBackend, row: StatusRow, page_locks: PageLocks) -> None:
        self._backend = backend
        self._row = row
        self._load = EngineLoad(row, ServiceRate(backend.settings.max_batch_size))
        self._page_locks = page_locks
        self._offers = ModelOffers(backend.models)
        self._sessions: set[Session] = set()
        self._count = 0
        self._known: object = None
        self._readiness = Readiness(ready=False, loaded=False)
        self._all_offered = asyncio.Event()
        self._renewing = asyncio.Lock()
        backend.metrics.watch(backend.metrics.ready, lambda: self._is_ready)
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[None]] = set()

    @property
    def has_no_front_end(self) -> bool:
        """Whether no front end is connected."""
        return not any(session.connected for session in self._sessions)

    @property
    def _is_ready(self) -> bool:
        return self._readiness.ready and self._readiness.loaded

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections of front ends, until cancelled; none waits for another that waits for all models."""
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            task = loop.create_task(self._connect(connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def announce_changes(self) -> None:
        """Announce changes to front ends and write the heartbeat, until cancelled."""
        while True:
            loaded = self._backend.loaded.is_set()  # read first: it must imply that all models are offered
            await self._renew_offers()
            readiness = Readiness(self._backend.ready, loaded)
            news, self._readiness = readiness != self._readiness, readiness
            if loaded:
                self._all_offered.set()
            self._row.ready, self._row.heartbeat_at = self._is_ready, time.monotonic()
            self._row.loading = self._backend.loading
            self._backend.metrics.refresh()
            if news:  # after the metrics, so that no front end is ready before the metrics show it
                for session in self._sessions:
                    session.channel.send(readiness)
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def close(self) -> None:
        """End all sessions, and the connections that wait to become one."""
        for task in list(self._connecting):
            await cancel_and_wait(task)
        for session in list(self._sessions):
            session.channel.close()
        self._offers.close()

    async def _connect(self, connection: socket.socket) -> None:
        """Make a session of a connection, which is closed if that fails or is cancelled."""
        with ExitStack() as stack:
            stack.callback(connection.close)
            try:
                await self._open_session(connection)
            except OSError as error:
                _log.warning("front end rejected", reason=str(error))
            else:
                stack.pop_all()

    async def _open_session(self, connection: socket.socket) -> None:
        """Open a session after the front end's greeting.

        Raises:
            OSError: no valid greeting came in time, or its memory cannot be mapped.
        """
        greeting = partial(receive_greeting, connection)
        hello, descriptor = await run_to_completion_on_thread(greeting)  # the thread uses the connection
        try:
            memory = Memory(descriptor, hello.slots_bytes)
        finally:
            os.close(descriptor)
        if hello.wants_all:
            await self._all_offered.wait()
        locked = await asyncio.to_thread(self._page_locks.lock, memory)
        self._count += 1
        backend, offers = self._backend, self._offers
        session = Session(
            self._count,
            backend.batcher,
            offers,
            memory,
            locked,
            self._load,
            load_version=self._load_on_request,
            done=self._forget_session,
        )
        self._sessions.add(session)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: session.channel, connection)
        self._offers.add_front_end(session.number)
        session.channel.send(self._offers.served_message())
        session.channel.send(self._readiness)
        _log.info("front end connected", front_end=hello.front_end, locked=locked)

    async def _renew_offers(self) -> None:
        async with self._renewing:
            known = (self._backend.models.statuses(), self._backend.supervisor.restarts)
            if known == self._known:
                return
            self._offers.replace_offers(await asyncio.to_thread(self._offers.lease_ready))
            self._known = known
        served = self._offers.served_message()
        for session in self._sessions:
            session.channel.send(served)

    def _load_on_request(self, session: Session, wanted: RequestVersion) -> None:
        task = asyncio.get_running_loop().create_task(self._offer_version(session, wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _offer_version(self, session: Session, wanted: RequestVersion) -> None:
        """Load and offer a version that is not the newest; it is offered for as long as the repository keeps it."""
        with ExitStack() as stack:
            lease = self._backend.models.lease(wanted.name, wanted.version)
            try:
                await asyncio.to_thread(stack.enter_context, lease)
            except RetouchError as error:
                session.channel.send(encode_error(wanted.id, error))
                return
            await self._renew_offers()
            session.channel.send(VersionOffered(wanted.id))

    def _forget_session(self, session: Session) -> None:
        self._sessions.discard(session)
        self._page_locks.unlock(session.memory)


async def serve(assignment: Assignment) -> int:
    """Serve front ends until a signal or the loss of the device; returns the exit status."""
    use_patient_threads()
    settings, ending = assignment.settings, asyncio.Event()
    row = StatusBoard(assignment.board, assignment.row_counts).engine(assignment.index)
    replaces = row.claim_row(time.monotonic())
    metrics = Metrics(device=assignment.device)
    if replaces:  # counted here, because a hung or killed process cannot count its own restart
        metrics.worker_restarts.inc()
    open_backend = partial(open_local_backend, settings, metrics, own_process=True)
    page_locks = open_page_locks(settings.engine, settings.device)
    async with open_backend() as backend, _open_server(backend, row, page_locks) as server:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, *hangup_signals()):
            loop.add_signal_handler(number, ending.set)
        async with AsyncExitStack() as stack:
            listener = socket.socket(fileno=assignment.listener)
            listener.setblocking(False)
            stack.callback(listener.close)
            for work in (server.accept(listener), server.announce_changes()):
                stack.push_async_callback(cancel_and_wait, asyncio.create_task(work))
            while not (ending.is_set() and server.has_no_front_end) and not backend.lost.is_set():  # noqa: ASYNC110 -- three events
                await asyncio.sleep(_POLL_INTERVAL_S)
            end_within(END_WITHIN_S)
        row.clear_row()
        if backend.lost.is_set():
            _log.error("the device is lost or hangs; this process ends")
            os._exit(EXIT_DEVICE_LOST)  # no clean-up: a lost device cannot be freed, and a hung thread cannot be joined
    return 0


@asynccontextmanager
async def _open_server(backend: LocalBackend, row: StatusRow, page_locks: PageLocks) -> AsyncIterator[EngineServer]:
    server = EngineServer(backend, row, page_locks)
    try:
        yield server
    finally:
        await server.close()
