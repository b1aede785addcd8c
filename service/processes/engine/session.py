"""The engine process's side of the connection to one front end: reads samples from slots and writes tiles to them.

Every sample is answered exactly once, when its slot is no longer used. If it is withdrawn while it is being computed,
it is answered when its batch is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import structlog

from service.batching.batcher import Batcher, Entry
from service.core.batch_rows import ComputedSample
from service.core.errors import NotReady, ServiceError
from service.core.flow import Flow
from service.processes.engine.leases import ModelOffers
from service.processes.engine.load import EngineLoad
from service.processes.shared.channel import Channel
from service.processes.shared.messages import Begun, Done, Failed, Message, Release, RequestVersion, Submit, Withdraw
from service.processes.shared.slots import Memory

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Session:
    """One connected front end. Used on the event loop only."""

    number: int
    """Unique number of this connection."""
    batcher: Batcher
    offers: ModelOffers
    memory: Memory
    """The shared memory of the front end's slots."""
    locked: bool
    """Whether the slots are page-locked."""
    load: EngineLoad
    """The load of this process."""
    load_version: Callable[[Session, RequestVersion], None]
    """Called to load a version that is not the newest."""
    done: Callable[[Session], None]
    """Called when the front end has disconnected and its slots are no longer used."""
    connected: bool = True
    channel: Channel = field(init=False)
    _entries: dict[int, Entry] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.channel = Channel(self._receive, self._handle_lost_connection)

    def _receive(self, message: Message) -> None:
        if isinstance(message, Submit):
            self._submit(message)
        elif isinstance(message, Withdraw):
            self._withdraw(message.id)
        elif isinstance(message, Release):
            self.offers.release(self.number, message.lease)
        elif isinstance(message, RequestVersion):
            self.load_version(self, message)
        else:
            _log.error("a front end sent an invalid message", message=type(message).__name__)

    def _submit(self, order: Submit) -> None:
        offered = self.offers.find(order.lease)
        try:
            if offered is None:
                raise NotReady("the model is no longer loaded; try again", code="worker_lost")
            layout = offered.layouts.of(order.height, order.width, order.samples)
            size = (order.height, order.width, order.samples)
            sample = self.memory.sample(order.offset, layout, size, locked=self.locked)
            on_begun = partial(self.channel.send, Begun(order.id)) if order.notify_begun else None
            flow = Flow(order.client, order.priority)
            entry = self.batcher.enqueue(
                sample, offered.lease.served, order.deadline, on_begun, flow, traced=order.traced
            )
        except ServiceError as error:
            self.channel.send(encode_error(order.id, error))
            return
        self._entries[order.id] = entry
        self.load.accepted(flow)
        entry.reply.add_done_callback(partial(self._answer, order.id, entry, flow))

    def _withdraw(self, number: int) -> None:
        entry = self._entries.get(number)
        if entry is not None and self.batcher.withdraw(entry):
            entry.reply.cancel()

    def _answer(self, number: int, entry: Entry, flow: Flow, reply: asyncio.Future[ComputedSample]) -> None:
        del self._entries[number]
        self.load.answered(flow)
        if reply.cancelled():
            self.channel.send(Failed(number, "Withdrawn", "the request was cancelled"))
        elif (error := reply.exception()) is not None:
            self.channel.send(encode_error(number, error))
        else:
            done, into = reply.result(), entry.sample.into
            self.load.record(done)
            if into is not None and done.tile is not into:  # the device has written the tile elsewhere
                np.copyto(into, done.tile)
            self.channel.send(Done(number, done.batch_size, done.queue_s, done.infer_s, done.device_s, done.batch))
        self._end_if_idle()

    def _handle_lost_connection(self) -> None:
        """Handle the end of the connection: withdraw the samples that are still queued."""
        self.connected = False
        self.offers.remove_front_end(self.number)
        for number in list(self._entries):
            self._withdraw(number)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self.connected and not self._entries:
            self.done(self)


def encode_error(number: int, error: BaseException) -> Failed:
    """Encode an error as the answer to message `number`; front_end/pending.py decodes it."""
    if isinstance(error, ServiceError):
        return Failed(number, type(error).__name__, str(error), error.code, error.retry_after_s)
    return Failed(number, type(error).__name__, str(error))
