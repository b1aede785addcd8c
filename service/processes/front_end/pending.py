"""Pending calls on one connection to an engine process, until they are answered or the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engines.errors import EngineUnavailable, ModelNotFound, RetouchError
from service.core.errors import DeadlineExceeded, InferenceFailed, NotReady, Overloaded, ServiceError, ShuttingDown
from service.processes.shared.channel import Channel
from service.processes.shared.messages import Done, Failed, Message, VersionOffered
from service.processes.shared.slots import Arena, Slot

_ERRORS: dict[str, type[ServiceError]] = {
    known.__name__: known for known in (DeadlineExceeded, InferenceFailed, NotReady, Overloaded, ShuttingDown)
}


class EngineProcessLost(Exception):
    """The engine process ended before it answered; the call can be repeated on another one."""


@dataclass(slots=True, eq=False)
class PendingSample:
    """A sample that was submitted and is not yet answered."""

    answer: asyncio.Future[Done]
    slot: Slot | None
    """Held until the answer, even if the client has left; after it, the tile keeps the slot allocated."""
    on_begun: Callable[[], None] | None

    def end(self, error: Exception | None = None) -> None:
        """Drop the slot, which a traceback with this object would keep; fail the call if there is an error."""
        self.slot = None
        if error is not None:
            fail_future(self.answer, error)


@dataclass(slots=True, eq=False)
class Connection:
    """A connection, with its shared memory and its pending calls, which end with it."""

    arena: Arena
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    pending: dict[int, PendingSample] = field(default_factory=dict)
    """Unanswered samples, by the number of their message."""
    version_requests: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    """Unanswered requests for versions, likewise; each future is done once the version is offered."""
    channel: Channel | None = None

    def send(self, message: Message) -> None:
        if self.channel is not None:
            self.channel.send(message)

    def answer(self, message: Done | Failed | VersionOffered) -> None:
        """Complete the pending call that the message answers."""
        pending = self.pending.pop(message.id, None)
        offered = self.version_requests.pop(message.id, None)
        if isinstance(message, Failed):
            if pending is not None:
                pending.end(_sample_error(message))
            if offered is not None:
                fail_future(offered, _lease_error(message))
        elif isinstance(message, Done):
            if pending is not None and pending.answer.done():
                pending.end()
            elif pending is not None:
                pending.answer.set_result(message)
        elif offered is not None and not offered.done():
            offered.set_result(None)

    def end(self) -> None:
        """Fail all pending calls, because the connection has ended."""
        self.lost.set()
        for pending in self.pending.values():
            pending.end(EngineProcessLost())
        for offered in self.version_requests.values():
            fail_future(offered, EngineProcessLost())
        self.pending.clear()
        self.version_requests.clear()


def fail_future(answer: asyncio.Future[Any], error: Exception) -> None:
    """Set an error on a future that is not done."""
    if not answer.done():
        answer.set_exception(error)


def _sample_error(failure: Failed) -> ServiceError:
    """Decode the error of a sample; unknown classes become ServiceError."""
    kind = _ERRORS.get(failure.kind, ServiceError)
    return kind(failure.text, code=failure.code or None, retry_after_s=failure.retry_after_s)


def _lease_error(failure: Failed) -> RetouchError:
    """Decode the error of a version that could not be loaded."""
    return ModelNotFound(failure.text) if failure.kind == "ModelNotFound" else EngineUnavailable(failure.text)
