"""A front end's connection to one engine process: it reconnects when lost, and answers every sample exactly once.

Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.core.batch_rows import ComputedSample
from service.core.errors import ShuttingDown
from service.processes.front_end.orders import EngineFacts, RemoteModel, SampleOrder, decode_status, submit_message
from service.processes.front_end.pending import Connection, EngineProcessLost, PendingSample, fail_future
from service.processes.shared.channel import Channel, greet
from service.processes.shared.messages import (
    Begun,
    Done,
    Failed,
    Hello,
    Message,
    Readiness,
    Release,
    RequestVersion,
    Served,
    VersionOffered,
    Withdraw,
)
from service.processes.shared.slots import Arena, SlotLayouts

_log = structlog.get_logger(__name__)

_RECONNECT_S = 0.05


class EngineClient:
    """Connection to one engine process and, if that is lost, to its replacement.

    Args:
        path: path of the engine process's socket.
        front_end: index of this front end.
        slots_bytes: size of the shared memory.
        changed: called when the engine process's models or readiness have changed.
        greet: connects to the socket and shares the memory.
    """

    def __init__(
        self,
        path: Path,
        front_end: int,
        slots_bytes: int,
        changed: Callable[[], None],
        greet: Callable[[Path, Hello, int], socket.socket] = greet,
    ) -> None:
        self._greet = greet
        self._path = path
        self._front_end, self._slots_bytes = front_end, slots_bytes
        self._changed = changed
        self._connection: Connection | None = None
        self._numbers = itertools.count(1)
        self.device_ready = False
        self.loaded = False
        """Whether an engine process has announced that all its models are loaded."""
        self.models: dict[int, RemoteModel] = {}
        """The engine process's models, by number; after a loss they stay until the replacement announces its own."""
        self.statuses: list[ModelStatus] = []
        """Statuses of the engine process's models; kept like `models`."""
        self._served_by: Connection | None = None

    @property
    def ready(self) -> bool:
        """Whether the engine process is connected and its device worker is ready."""
        return self._connection is not None and self.device_ready

    @property
    def slot_bytes(self) -> int:
        """Bytes of shared memory in use by slots."""
        return 0 if self._connection is None else self._slots_bytes - self._connection.arena.free_bytes

    async def keep_connected(self) -> None:
        """Keep a connection open, reconnecting when it is lost, until cancelled."""
        try:
            while True:
                try:
                    connection = await self._connect()
                except OSError as error:  # the launcher owns the socket, so this is rare
                    _log.debug("no engine process", reason=str(error))
                else:
                    await connection.lost.wait()
                await asyncio.sleep(_RECONNECT_S)
        finally:
            left, self._connection = self._connection, None
            if left is not None and left.channel is not None:
                left.channel.close()

    async def compute(self, model: RemoteModel, order: SampleOrder) -> ComputedSample:
        """Compute the tile of one sample. The tile may be a view of its slot, which then stays allocated as long as it.

        Raises:
            EngineProcessLost: the process ended before it answered.
            ServiceError: raised by the engine process's batcher.
        """
        connection = self._connection
        if connection is None:
            raise EngineProcessLost
        sample = order.sample
        layout = model.layouts.of(*sample.tile, sample.samples)
        slot = await connection.arena.allocate(layout.nbytes)
        if connection.lost.is_set():  # lost while waiting for memory
            raise EngineProcessLost
        slot.write(layout, sample.arrays)
        answer, number = asyncio.get_running_loop().create_future(), next(self._numbers)
        connection.pending[number] = pending = PendingSample(answer, slot, order.on_begun)
        connection.send(submit_message(number, model, slot, order))
        del slot, answer
        try:
            done = await pending.answer
            assert pending.slot is not None  # noqa: S101 -- kept until `end`
            tile = pending.slot.read(layout.output)
            if connection.arena.has_waiting:  # free the slot: this request's other samples may wait for memory
                tile = tile.copy()
            pending.end()
        except asyncio.CancelledError:
            if number in connection.pending:
                connection.send(Withdraw(number))
            else:  # answered just before the cancellation
                pending.end()
            raise
        finally:
            del pending  # breaks a cycle (answer, error, traceback, this frame) that would keep the sample in memory
        return ComputedSample(tile, done.batch_size, done.queue_s, done.infer_s, done.device_s, done.batch)

    async def load_version(self, name: str, version: int) -> None:
        """Make the engine process load and offer a version that is not the newest.

        Raises:
            EngineProcessLost: the process ended before it answered.
            ModelNotFound, EngineUnavailable: the version cannot be loaded.
        """
        connection = self._connection
        if connection is None:
            raise EngineProcessLost
        number, offered = next(self._numbers), asyncio.get_running_loop().create_future()
        connection.version_requests[number] = offered
        connection.send(RequestVersion(number, name, version))
        await offered

    def release(self, model: RemoteModel) -> None:
        """End one lease of a model."""
        model.users -= 1
        self._release_if_unused(model)

    @property
    def unanswered_samples(self) -> int:
        """Number of samples that were submitted and are not yet answered."""
        return len(self._connection.pending) if self._connection is not None else 0

    def fail_unanswered(self, error: ShuttingDown) -> None:
        """Fail all unanswered samples with this error."""
        if self._connection is not None:
            for number, pending in self._connection.pending.items():
                fail_future(pending.answer, error)
                self._connection.send(Withdraw(number))

    async def _connect(self) -> Connection:
        arena = Arena(self._slots_bytes)
        hello = Hello(self._front_end, self._slots_bytes, wants_all=bool(self.models))
        try:
            raw = self._greet(self._path, hello, arena.descriptor)
        finally:
            arena.close_descriptor()
        connection = Connection(arena)
        channel = Channel(
            lambda message: self._receive(connection, message), lambda: self._handle_lost_connection(connection)
        )
        connection.channel = channel
        self._connection = connection  # set before awaiting, because uvloop delivers data that has already arrived
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=raw)
        except OSError:
            self._connection = None
            raise
        return connection

    def _receive(self, connection: Connection, message: Message) -> None:
        if isinstance(message, Done | Failed | VersionOffered):
            connection.answer(message)
        elif isinstance(message, Begun):
            if (begun := connection.pending.get(message.id)) is not None and begun.on_begun is not None:
                begun.on_begun()
        elif isinstance(message, Served):
            self._serve(connection, message)
        elif isinstance(message, Readiness):
            self.device_ready, self.loaded = message.ready, self.loaded or message.loaded
            self._changed()

    def _serve(self, connection: Connection, served: Served) -> None:
        if self._served_by is not connection:  # another process, which numbers its models itself
            self.models, self._served_by = {}, connection
        manifests = {
            (status.name, status.version): Manifest.model_validate_json(status.manifest)
            for status in served.statuses
            if status.manifest is not None
        }
        offered = {offer.lease: offer for offer in served.offers}
        for model in list(self.models.values()):
            model.offered = model.lease in offered
            self._release_if_unused(model)
        for offer in served.offers:
            if offer.lease not in self.models:
                manifest = manifests[offer.name, offer.version]
                facts = EngineFacts(offer.engine, offer.precision)
                self.models[offer.lease] = RemoteModel(offer.lease, manifest, facts, SlotLayouts(manifest))
        self.statuses = [decode_status(status, manifests) for status in served.statuses]
        self._changed()

    def _release_if_unused(self, model: RemoteModel) -> None:
        if not model.offered and not model.users and self.models.get(model.lease) is model:
            del self.models[model.lease]
            if self._connection is not None and self._connection is self._served_by:  # else another process's number
                self._connection.send(Release(model.lease))

    def _handle_lost_connection(self, connection: Connection) -> None:
        if self._connection is connection:  # else this side closed it
            _log.warning("engine process lost", unanswered=len(connection.pending))
            self._connection, self.device_ready = None, False
        connection.end()
        self._changed()
