"""A front end's room: the models of all engine processes as one, and `submit` to the least loaded of them.

The pipeline sees the same contract as in a single process. Used on the event loop, but for leases of older versions,
which block.
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
from service.admission.retry_book import RetryBook
from service.core.errors import NotReady, ShuttingDown
from service.core.flow import ANYONE, Flow
from service.core.items import Computed, Sample
from service.core.settings import Settings
from service.lifecycle.background import cancelled
from service.processes.front_end.engine_client import EngineLink, Facts, Order, RemoteModel
from service.processes.front_end.pending import EngineProcessLost
from service.processes.shared.assignment import Assignment
from service.processes.shared.status_board import Board
from service.telemetry.metrics import Metrics

_PATIENCE_S = 30.0
"""How long a request waits for an engine process to come back, if its deadline allows."""
_BEAT_EVERY_S = 0.25
_BEST_STATE_FIRST = ("ready", "available", "refused")


@dataclass(frozen=True, slots=True, eq=False)
class LeasedModel:
    """A model, and the engine processes that offered it when it was leased."""

    manifest: Manifest
    engine: Facts
    on: Mapping[EngineLink, RemoteModel]


class RemoteModels:
    """The models of all engine processes. The newest version that any of them offers is the one that is served."""

    def __init__(self, links: Sequence[EngineLink]) -> None:
        self._links = links
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def lease(self, name: str, version: int | None = None) -> Iterator[LeasedModel]:
        """Use a model; it stays loaded until the block ends.

        Args:
            name: the model.
            version: None for the newest; an older one may have to be loaded first, so that this blocks and must not be
                called on the event loop.

        Raises:
            ModelNotFound: nothing of that name and version can be served.
            EngineUnavailable: it cannot be loaded, or no engine process is there.
        """
        if version is None:
            leased = self._acquire(name, None)
        else:
            leased = asyncio.run_coroutine_threadsafe(self._find(name, version), self._loop).result()
        try:
            yield leased
        finally:
            for link, model in leased.on.items():
                link.release(model)

    def statuses(self) -> list[ModelStatus]:
        """Every version, by name, newest first; in the best state that it has in any engine process."""
        best: dict[tuple[str, int], ModelStatus] = {}
        for status in (status for link in self._links for status in link.statuses):
            known = best.setdefault((status.name, -status.version), status)
            if _BEST_STATE_FIRST.index(status.state) < _BEST_STATE_FIRST.index(known.state):
                best[status.name, -status.version] = status
        return [best[key] for key in sorted(best)]

    def offering(self, manifest: Manifest) -> dict[EngineLink, RemoteModel]:
        """The engine processes that work and have that very model."""
        return {
            link: model
            for link in self._links
            if link.ready
            for model in link.models.values()
            if model.offered and model.manifest == manifest
        }

    async def _find(self, name: str, version: int) -> LeasedModel:
        """A version that may be offered nowhere yet."""
        if not any(self._offered(name, version)):
            for link in self._links:
                if link.ready:
                    try:
                        await link.want(name, version)
                    except EngineProcessLost as error:
                        raise EngineUnavailable("the engine process ended; try again") from error
        return self._acquire(name, version)

    def _acquire(self, name: str, version: int | None) -> LeasedModel:
        newest = max(self._offered(name, version), key=lambda model: model.manifest.version, default=None)
        if newest is None:
            raise ModelNotFound(self._why_not_found(name, version))
        on = self.offering(newest.manifest)
        for model in on.values():
            model.users += 1
        return LeasedModel(newest.manifest, newest.engine, on)

    def _offered(self, name: str, version: int | None) -> Iterator[RemoteModel]:
        for link in self._links:
            for model in link.models.values():
                if model.offered and model.manifest.name == name and version in (None, model.manifest.version):
                    yield model

    def _why_not_found(self, name: str, version: int | None) -> str:
        asked = name if version is None else f"{name}/{version}"
        statuses = self.statuses()
        refused = [
            f"; {status.name}/{status.version} is refused: {status.reason}"
            for status in statuses
            if status.state == "refused" and status.name == name and version in (None, status.version)
        ]
        offered = ", ".join(f"{s.name}/{s.version}" for s in statuses if s.state != "refused") or "none"
        return f"no model {asked}; available: {offered}{''.join(refused)}"


class RemoteBatcher:
    """`submit` to the engine process with the least to do; asked once more when that is lost.

    Args:
        models: the room's.
        board: where engine processes say how much they have to do.
        links: to them, by index.
        clock: of the deadlines.
    """

    def __init__(
        self, models: RemoteModels, board: Board, links: Sequence[EngineLink], clock: Callable[[], float]
    ) -> None:
        self._models = models
        self._clock = clock
        self._rows = {link: board.engine(index) for index, link in enumerate(links)}
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
    ) -> Computed:
        """As `Batcher.submit`.

        Raises:
            DeadlineExceeded, InferenceFailed, ShuttingDown: as `Batcher.submit`.
            NotReady: the engine process was lost twice, or did not come back in time.
        """
        order = Order(sample, deadline, on_begun, flow, traced)
        for attempt in (1, 2):
            link, remote = await self._least_loaded(model, deadline)
            try:
                return await link.compute(remote, order)
            except EngineProcessLost:
                continue
            except NotReady as error:  # its device worker was lost, and the process goes on
                if error.code != "worker_lost" or attempt == 2:
                    raise
        raise NotReady("the engine was lost twice over this request", code="worker_lost")

    def changed(self) -> None:
        """An engine process came, went, or has other models."""
        self._change.set()
        self._change = asyncio.Event()

    def close(self) -> None:
        """Answer everyone who waits, or comes, with ShuttingDown."""
        self._closed = True
        for link in self._rows:
            link.give_up(_shutting_down())
        self.changed()

    async def _least_loaded(self, model: LeasedModel, deadline: float) -> tuple[EngineLink, RemoteModel]:
        """An engine process that has the model, after waiting for one."""
        until = min(deadline, self._clock() + _PATIENCE_S)
        while True:
            if self._closed:
                raise _shutting_down()
            on = {link: one for link, one in model.on.items() if link.ready and link.models.get(one.lease) is one}
            on = on or self._models.offering(model.manifest)
            if on:
                link = min(on, key=lambda link: (self._rows[link].load, link.unanswered))
                return link, on[link]
            try:
                await asyncio.wait_for(self._change.wait(), until - self._clock())
            except asyncio.TimeoutError:
                raise NotReady(
                    f"no engine process serves {model.manifest.key} now; try again", code="worker_lost"
                ) from None


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the server shut down before this request was computed; ask another replica")


@dataclass(frozen=True, slots=True)
class StatusBoardLoad:
    """The house of several front ends: see `service.admission.ServerLoad`."""

    board: Board
    index: int
    retry_book: RetryBook

    @property
    def in_flight_elsewhere(self) -> int:
        return self.board.inside_elsewhere(self.index)

    @property
    def engines(self) -> int:
        return max(1, self.board.engines_ready)

    def publish(self, in_flight: int) -> None:
        self.board.front_end(self.index).in_flight = in_flight


class RemoteBackend:
    """Computes in other processes.

    Args:
        assignment: of this front end.
        settings: all knobs.
    """

    def __init__(self, assignment: Assignment, settings: Settings, metrics: Metrics) -> None:
        board = Board(assignment.board, assignment.places)
        self.row = board.front_end(assignment.index)
        self.row.clear()
        slots_bytes = int(settings.slots_mb * 2**20)
        self.links = [
            EngineLink(Path(path), assignment.index, slots_bytes, self.changed) for path in assignment.sockets
        ]
        self.models = RemoteModels(self.links)
        self.batcher = RemoteBatcher(self.models, board, self.links, time.monotonic)
        self.server_load = StatusBoardLoad(board, assignment.index, board.book(assignment.index))
        self.loaded = asyncio.Event()
        self.lost = asyncio.Event()
        """Never set: another engine process takes the place of one that is lost."""
        self._metrics = metrics
        metrics.watch(metrics.slot_bytes, lambda: sum(link.slot_bytes for link in self.links))

    @property
    def ready(self) -> bool:
        return any(link.ready for link in self.links)

    def changed(self) -> None:
        """An engine process came, went, or has other models."""
        self.batcher.changed()
        if not self.loaded.is_set() and any(link.known for link in self.links):
            self.loaded.set()
            gc.collect()
            gc.freeze()  # modules stay for good: keep the collector out of the hot path
        self._show()  # who is told by /readyz that it is ready reads no older answer in /metrics of another process

    async def beat(self) -> None:
        """Show life, until cancelled."""
        while True:
            self._show()
            await asyncio.sleep(_BEAT_EVERY_S)

    def _show(self) -> None:
        self.row.beat_at, self.row.ready = time.monotonic(), self.ready
        self._metrics.refresh()


@asynccontextmanager
async def open_remote_backend(
    assignment: Assignment, settings: Settings, metrics: Metrics
) -> AsyncIterator[RemoteBackend]:
    """A room whose engines are in other processes; it connects to them for as long as it is open."""
    backend = RemoteBackend(assignment, settings, metrics)
    async with AsyncExitStack() as stack:
        stack.callback(backend.row.clear)
        for work in (backend.beat(), *(link.keep() for link in backend.links)):
            stack.push_async_callback(cancelled, asyncio.create_task(work))
        stack.callback(backend.batcher.close)
        yield backend
