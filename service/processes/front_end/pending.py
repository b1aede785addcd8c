"""What a front end has asked over one connection to an engine process, until it is answered or the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from service.processes.front_end.errors import model_error, service_error
from service.processes.shared.channel import Channel
from service.processes.shared.messages import Done, Failed, Found, Message
from service.processes.shared.slots import Arena, Slot


class EngineProcessLost(Exception):
    """It ended before it answered; whatever it was asked can be asked again, there or elsewhere."""


@dataclass(slots=True, eq=False)
class Asked:
    """One sample that was submitted."""

    answer: asyncio.Future[Done]
    slot: Slot | None
    """Held until it is answered, whether or not somebody still waits; then it goes with the tile."""
    on_begun: Callable[[], None] | None

    def end(self, error: Exception | None = None) -> None:
        """The slot is nobody's any more; a traceback that refers to this must not hold it."""
        self.slot = None
        if error is not None:
            fail(self.answer, error)


@dataclass(slots=True, eq=False)
class Connection:
    """What ends with a connection: nothing of it is used after."""

    arena: Arena
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    asked: dict[int, Asked] = field(default_factory=dict)
    searches: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    channel: Channel | None = None

    def send(self, message: Message) -> None:
        if self.channel is not None:
            self.channel.send(message)

    def answer(self, message: Done | Failed | Found) -> None:
        """What was asked under that number is answered, whether or not somebody still waits."""
        asked = self.asked.pop(message.id, None)
        search = self.searches.pop(message.id, None)
        if isinstance(message, Failed):
            if asked is not None:
                asked.end(service_error(message))
            if search is not None:
                fail(search, model_error(message))
        elif isinstance(message, Done):
            if asked is not None and asked.answer.done():
                asked.end()
            elif asked is not None:
                asked.answer.set_result(message)
        elif search is not None and not search.done():
            search.set_result(None)

    def end(self) -> None:
        """No answer will come any more: everyone is told so."""
        self.lost.set()
        for asked in self.asked.values():
            asked.end(EngineProcessLost())
        for search in self.searches.values():
            fail(search, EngineProcessLost())
        self.asked.clear()
        self.searches.clear()


def fail(answer: asyncio.Future[Any], error: Exception) -> None:
    """Answer with an error, if somebody still waits."""
    if not answer.done():
        answer.set_exception(error)
