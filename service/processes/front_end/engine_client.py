"""A front end's side of one engine process: connects, again and again, and brings every request one answer.

Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.core.errors import ShuttingDown
from service.core.flow import Flow
from service.core.samples import Computed, Sample
from service.processes.front_end.pending import Asked, Connection, EngineProcessLost, fail
from service.processes.shared.channel import Channel, greet
from service.processes.shared.messages import (
    Begun,
    Done,
    Failed,
    Found,
    Hello,
    LetGo,
    Message,
    Served,
    Status,
    Submit,
    Vitals,
    Wanted,
    Withdraw,
)
from service.processes.shared.slots import Arena, Slot, SlotLayouts

_log = structlog.get_logger(__name__)

_RECONNECT_S = 0.05


@dataclass(frozen=True, slots=True)
class Facts:
    """The engine of an offered model."""

    name: str
    precision: str


@dataclass(slots=True, eq=False)
class RemoteModel:
    """A model that an engine process offers. It is let go of when it is offered no longer and nobody uses it."""

    lease: int
    manifest: Manifest
    engine: Facts
    layouts: SlotLayouts
    users: int = 0
    offered: bool = True


@dataclass(frozen=True, slots=True)
class Order:
    """One sample, and what is wanted of it."""

    sample: Sample
    deadline: float
    on_begun: Callable[[], None] | None
    flow: Flow
    traced: bool = False


class EngineLink:
    """The way to one engine process, whichever process that is.

    Args:
        path: of the socket that it listens on.
        front_end: this front end's index.
        slots_bytes: of memory to share with it.
        changed: called when what it offers, or whether it is ready, has changed.
    """

    def __init__(self, path: Path, front_end: int, slots_bytes: int, changed: Callable[[], None]) -> None:
        self._path = path
        self._hello = Hello(front_end, slots_bytes)
        self._changed = changed
        self._connection: Connection | None = None
        self._number = 0
        self.vital = False
        self.known = False
        """Whether it has told of its models."""
        self.models: dict[int, RemoteModel] = {}
        """Of the process that was lost, until the next one tells of its own: what is served does not change by that."""
        self.statuses: list[ModelStatus] = []
        """As `models`."""
        self._served_by: Connection | None = None

    @property
    def ready(self) -> bool:
        """Whether it is connected and its device worker works."""
        return self._connection is not None and self.vital

    @property
    def slot_bytes(self) -> int:
        """Of the memory that is shared with it, what slots take now."""
        return 0 if self._connection is None else self._hello.slots_bytes - self._connection.arena.free_bytes

    async def keep(self) -> None:
        """Connect whenever there is no connection, until cancelled."""
        try:
            while True:
                try:
                    connection = await self._connect()
                except OSError as error:  # the launcher's socket is there as long as the launcher
                    _log.debug("no engine process", reason=str(error))
                else:
                    await connection.lost.wait()
                await asyncio.sleep(_RECONNECT_S)
        finally:
            left, self._connection = self._connection, None
            if left is not None and left.channel is not None:
                left.channel.close()

    async def compute(self, model: RemoteModel, order: Order) -> Computed:
        """The tile of one sample. It lies in the slot, which it takes up for as long as it is used.

        Raises:
            EngineProcessLost: the process ended first; nothing was answered.
            ServiceError: as the engine process's batcher says.
        """
        connection = self._connection
        if connection is None:
            raise EngineProcessLost
        sample = order.sample
        layout = model.layouts.of(*sample.tile, sample.samples)
        slot = await connection.arena.take(layout.nbytes)
        if connection.lost.is_set():  # while it waited for room
            raise EngineProcessLost
        slot.write(layout, sample.arrays)
        self._number += 1
        number, asked = self._number, Asked(asyncio.get_running_loop().create_future(), slot, order.on_begun)
        connection.asked[number] = asked
        connection.send(_submit(number, model, slot, order))
        del slot
        try:
            done = await asked.answer
        except asyncio.CancelledError:
            if number in connection.asked:
                connection.send(Withdraw(number))
            else:  # answered in the same moment
                asked.end()
            raise
        assert asked.slot is not None  # noqa: S101 -- it comes with the answer
        tile = asked.slot.read(layout.output)
        if connection.arena.crowded:  # the other tiles of its own request may be among those that wait for room
            tile = tile.copy()
        asked.end()
        return Computed(tile, done.batch_size, done.queue_s, done.infer_s, done.device_s, done.batch)

    async def want(self, name: str, version: int) -> None:
        """Have a version offered that is not the newest.

        Raises:
            EngineProcessLost: the process ended first.
            ModelNotFound, EngineUnavailable: it cannot be offered.
        """
        connection = self._connection
        if connection is None:
            raise EngineProcessLost
        self._number += 1
        search: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.searches[self._number] = search
        connection.send(Wanted(self._number, name, version))
        await search

    def release(self, model: RemoteModel) -> None:
        """Somebody does not use the model any more."""
        model.users -= 1
        self._let_go_if_unused(model)

    @property
    def unanswered(self) -> int:
        """Samples that this front end waits for."""
        return len(self._connection.asked) if self._connection is not None else 0

    def give_up(self, error: ShuttingDown) -> None:
        """Answer everyone who waits with that."""
        if self._connection is not None:
            for number, asked in self._connection.asked.items():
                fail(asked.answer, error)
                self._connection.send(Withdraw(number))

    async def _connect(self) -> Connection:
        arena = Arena(self._hello.slots_bytes)
        try:
            raw = greet(self._path, self._hello, arena.descriptor)
        finally:
            arena.hand_over()
        connection = Connection(arena)
        channel = Channel(lambda message: self._receive(connection, message), lambda: self._lost(connection))
        connection.channel = channel
        self._connection = connection  # before it is awaited: uvloop hands over first what has come meanwhile
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=raw)
        except OSError:
            self._connection = None
            raise
        return connection

    def _receive(self, connection: Connection, message: Message) -> None:
        if isinstance(message, Done | Failed | Found):
            connection.answer(message)
        elif isinstance(message, Begun):
            if (begun := connection.asked.get(message.id)) is not None and begun.on_begun is not None:
                begun.on_begun()
        elif isinstance(message, Served):
            self._serve(connection, message)
        elif isinstance(message, Vitals):
            self.vital = message.ready
            self._changed()

    def _serve(self, connection: Connection, served: Served) -> None:
        if self._served_by is not connection:  # another process, with numbers of its own
            self.models, self._served_by = {}, connection
        manifests = {
            (status.name, status.version): Manifest.model_validate_json(status.manifest)
            for status in served.statuses
            if status.manifest is not None
        }
        offered = {offer.lease: offer for offer in served.offers}
        for model in list(self.models.values()):
            model.offered = model.lease in offered
            self._let_go_if_unused(model)
        for offer in served.offers:
            if offer.lease not in self.models:
                manifest = manifests[offer.name, offer.version]
                facts = Facts(offer.engine, offer.precision)
                self.models[offer.lease] = RemoteModel(offer.lease, manifest, facts, SlotLayouts(manifest))
        self.statuses = [_status(status, manifests) for status in served.statuses]
        self.known = True
        self._changed()

    def _let_go_if_unused(self, model: RemoteModel) -> None:
        if not model.offered and not model.users and self.models.get(model.lease) is model:
            del self.models[model.lease]
            if self._connection is not None:
                self._connection.send(LetGo(model.lease))

    def _lost(self, connection: Connection) -> None:
        if self._connection is connection:  # and not one that was closed from here
            _log.warning("engine process lost", unanswered=len(connection.asked))
            self._connection, self.vital = None, False
        connection.end()
        self._changed()


def _submit(number: int, model: RemoteModel, slot: Slot, order: Order) -> Submit:
    height, width = order.sample.tile
    return Submit(
        number,
        model.lease,
        slot.offset,
        height,
        width,
        order.sample.samples,
        order.deadline,
        order.on_begun is not None,
        order.flow.client,
        order.flow.priority,
        order.traced,
    )


def _status(status: Status, manifests: Mapping[tuple[str, int], Manifest]) -> ModelStatus:
    return ModelStatus(
        status.name,
        status.version,
        status.state,  # type: ignore[arg-type] # a `State`, as the repository wrote it
        manifests.get((status.name, status.version)),
        status.reason,
        status.engine,
        status.precision,
        status.device,
    )
