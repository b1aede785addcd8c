"""A front end's backend: the models of all engine processes, and `submit` to the least loaded of them.

It has the same interface as the backend of a single process. Used on the event loop, except that a lease of a numbered
version blocks.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from engines.errors import EngineUnavailable, ModelNotFound
from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import NotReady, ShuttingDown
from service.core.flow import ANYONE, Flow
from service.core.settings import Settings
from service.lifecycle.background import cancel_and_wait
from service.lifecycle.host import IdleCores
from service.processes.front_end.board_load import StatusBoardLoad
from service.processes.front_end.engine_client import EngineClient
from service.processes.front_end.orders import EngineFacts, RemoteModel, SampleOrder
from service.processes.front_end.pending import EngineProcessLost
from service.processes.shared.assignment import Assignment
from service.processes.shared.status_board import StatusBoard
from service.telemetry.metrics import Metrics

_ENGINE_WAIT_S = 30.0
"""Longest time that a request waits for a ready engine process, in seconds."""
_HEARTBEAT_INTERVAL_S = 0.25
SLOTS_BYTES = 256 * 2**20
"""Memory that a front end shares with each engine process; unless page-locked, unused pages take no memory."""
_BEST_STATE_FIRST = ("ready", "available", "refused")


@dataclass(frozen=True, slots=True, eq=False)
class LeasedModel:
    """A leased model, and the engine processes that offered it at the time of the lease."""

    manifest: Manifest
    engine: EngineFacts
    on: Mapping[EngineClient, RemoteModel]


class RemoteModels:
    """The models of all engine processes. A model's newest version is the newest that any process offers."""

    def __init__(self, clients: Sequence[EngineClient]) -> None:
        self._clients = clients
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def lease(self, name: str, version: int | None = None) -> Iterator[LeasedModel]:
        """Lease a model, which stays loaded until the block ends.

        Args:
            name: name of the model.
            version: number of the version; None for the newest. With a number the call blocks, as the version may have
                to be loaded, so it must not run on the event loop.

        Raises:
            ModelNotFound: no model with that name and version can be served.
            EngineUnavailable: the version cannot be loaded, or its engine process ended.
        """
        if version is None:
            leased = self._acquire(name, None)
        else:
            leased = asyncio.run_coroutine_threadsafe(self._request_version(name, version), self._loop).result()
        try:
            yield leased
        finally:
            for client, model in leased.on.items():
                client.release(model)

    def statuses(self) -> list[ModelStatus]:
        """Return each version's best status in any engine process, sorted by name, newest versions first."""
        best: dict[tuple[str, int], ModelStatus] = {}
        for status in (status for client in self._clients for status in client.statuses):
            known = best.setdefault((status.name, -status.version), status)
            if _BEST_STATE_FIRST.index(status.state) < _BEST_STATE_FIRST.index(known.state):
                best[status.name, -status.version] = status
        return [best[key] for key in sorted(best)]

    def clients_offering(self, manifest: Manifest) -> dict[EngineClient, RemoteModel]:
        """Return the ready engine processes that offer exactly this model, with their records of it."""
        return {
            client: model
            for client in self._clients
            if client.ready
            for model in client.models.values()
            if model.offered and (model.manifest is manifest or model.manifest == manifest)
        }

    async def _request_version(self, name: str, version: int) -> LeasedModel:
        """Lease a version that may have to be loaded first."""
        if not any(self._offered_models(name, version)):
            for client in self._clients:
                if client.ready and client.loaded:  # one that still loads does not know all versions
                    try:
                        await client.load_version(name, version)
                    except EngineProcessLost as error:
                        raise EngineUnavailable("the engine process ended; try again") from error
        return self._acquire(name, version)

    def _acquire(self, name: str, version: int | None) -> LeasedModel:
        newest = max(self._offered_models(name, version), key=lambda model: model.manifest.version, default=None)
        if newest is None:
            raise ModelNotFound(self._why_not_found(name, version))
        on = self.clients_offering(newest.manifest)
        for model in on.values():
            model.users += 1
        return LeasedModel(newest.manifest, newest.engine, on)

    def _offered_models(self, name: str, version: int | None) -> Iterator[RemoteModel]:
        for client in self._clients:
            for model in client.models.values():
                if model.offered and model.manifest.name == name and version in (None, model.manifest.version):
                    yield model

    def _why_not_found(self, name: str, version: int | None) -> str:
        pending = name if version is None else f"{name}/{version}"
        statuses = self.statuses()
        refused = [
            f"; {status.name}/{status.version} is refused: {status.reason}"
            for status in statuses
            if status.state == "refused" and status.name == name and version in (None, status.version)
        ]
        offered = ", ".join(f"{s.name}/{s.version}" for s in statuses if s.state != "refused") or "none"
        return f"no model {pending}; available: {offered}{''.join(refused)}"


class RemoteBatcher:
    """Submits each sample to the least loaded engine process, and once more if that process is lost.

    Args:
        models: the backend's models.
        board: status board with the load of the engine processes.
        clients: connections to the engine processes, by index.
        clock: clock of the deadlines, in seconds.
    """

    def __init__(
        self, models: RemoteModels, board: StatusBoard, clients: Sequence[EngineClient], clock: Callable[[], float]
    ) -> None:
        self._models = models
        self._clock = clock
        self._rows = {client: board.engine(index) for index, client in enumerate(clients)}
        self._change = asyncio.Event()
        self._closed = False

    async def submit(
        self,
        sample: Sample,
        model: LeasedModel,
        deadline: float,
        on_begun: Callable[[], None] | None = None,
        flow: Flow = ANYONE,
        *,
        traced: bool = False,
    ) -> ComputedSample:
        """Compute the tile of one sample, like `Batcher.submit`.

        Raises:
            DeadlineExceeded, InferenceFailed, ShuttingDown: as raised by `Batcher.submit`.
            NotReady: code `worker_lost`: an engine was lost twice, or no engine process was ready in time.
        """
        order = SampleOrder(sample, deadline, on_begun, flow, traced)
        for attempt in (1, 2):
            client, remote = await self._least_loaded(model, deadline)
            try:
                return await client.compute(remote, order)
            except EngineProcessLost:
                continue
            except NotReady as error:  # the process still runs, but has lost its device worker
                if error.code != "worker_lost" or attempt == 2:
                    raise
        raise NotReady("the engine process was lost twice while it computed this request", code="worker_lost")

    def wake_waiting(self) -> None:
        """Wake the samples that wait for an engine process; called when one connects, is lost or changes its models."""
        self._change.set()
        self._change = asyncio.Event()

    def close(self) -> None:
        """Fail all waiting samples, and all later ones, with ShuttingDown."""
        self._closed = True
        for client in self._rows:
            client.fail_unanswered(_shutting_down_error())
        self.wake_waiting()

    async def _least_loaded(self, model: LeasedModel, deadline: float) -> tuple[EngineClient, RemoteModel]:
        """Wait for an engine process that has the model, and return the least loaded one."""
        until = min(deadline, self._clock() + _ENGINE_WAIT_S)
        while True:
            if self._closed:
                raise _shutting_down_error()
            on = {
                client: one for client, one in model.on.items() if client.ready and client.models.get(one.lease) is one
            }
            on = on or self._models.clients_offering(model.manifest)
            if on:
                client = min(on, key=lambda client: (self._rows[client].load, client.unanswered_samples))
                return client, on[client]
            try:
                await asyncio.wait_for(self._change.wait(), until - self._clock())
            except asyncio.TimeoutError:
                raise NotReady(
                    f"no engine process serves {model.manifest.key} now; try again", code="worker_lost"
                ) from None


def _shutting_down_error() -> ShuttingDown:
    return ShuttingDown("the server shut down before this request was computed; ask another replica")


class RemoteBackend:
    """Backend whose engines are in other processes.

    Args:
        assignment: the assignment of this front end.
        metrics: metrics of this front end.
        slots_bytes: size of the memory that it shares with each engine process.
    """

    def __init__(self, assignment: Assignment, metrics: Metrics, slots_bytes: int = SLOTS_BYTES) -> None:
        board = StatusBoard(assignment.board, assignment.row_counts)
        self.row = board.front_end(assignment.index)
        self.row.clear_row()
        self.clients = [
            EngineClient(Path(path), assignment.index, slots_bytes, self.handle_engine_change)
            for path in assignment.sockets
        ]
        self.models = RemoteModels(self.clients)
        self.batcher = RemoteBatcher(self.models, board, self.clients, time.monotonic)
        self.server_load = StatusBoardLoad(
            board,
            assignment.index,
            board.reservation_store(assignment.index),
            assignment.cores_for_pictures,
            IdleCores().count,
        )
        self.loaded = asyncio.Event()
        self.lost = asyncio.Event()
        """Never set, because the launcher replaces a lost engine process."""
        self._metrics = metrics
        metrics.watch(metrics.slot_bytes, lambda: sum(client.slot_bytes for client in self.clients))

    @property
    def ready(self) -> bool:
        return any(client.ready for client in self.clients)

    @property
    def loading(self) -> str:
        return self.server_load.board.loading

    def handle_engine_change(self) -> None:
        """Update this front end's state after an engine process has connected, was lost or has changed its models."""
        self.batcher.wake_waiting()
        if not self.loaded.is_set() and any(client.loaded for client in self.clients):
            self.loaded.set()
            gc.collect()
            gc.freeze()  # modules are permanent: exempt them from garbage collection
        self._write_status()  # at once, so that another process's /metrics does not lag behind /readyz

    async def write_heartbeats(self) -> None:
        """Write the heartbeat, until cancelled."""
        while True:
            self._write_status()
            await asyncio.sleep(_HEARTBEAT_INTERVAL_S)

    def _write_status(self) -> None:
        self.row.heartbeat_at, self.row.ready = time.monotonic(), self.loaded.is_set() and self.ready
        self._metrics.refresh()


@asynccontextmanager
async def open_remote_backend(
    assignment: Assignment, _settings: Settings, metrics: Metrics, slots_bytes: int = SLOTS_BYTES
) -> AsyncIterator[RemoteBackend]:
    """Open a backend whose engines are in other processes; it stays connected to them until the block ends."""
    backend = RemoteBackend(assignment, metrics, slots_bytes)
    async with AsyncExitStack() as stack:
        stack.callback(backend.row.clear_row)
        for work in (backend.write_heartbeats(), *(client.keep_connected() for client in backend.clients)):
            stack.push_async_callback(cancel_and_wait, asyncio.create_task(work))
        stack.callback(backend.batcher.close)
        yield backend
