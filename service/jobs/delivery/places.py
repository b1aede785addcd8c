"""Choice of the messages to attempt next. Receivers that hang, however many, delay only their own messages.

A receiver is an origin: scheme, host and port. A process makes few attempts at a time, and the next one to the origin
with the fewest under way, of these to the one that was tried longest ago. An origin gets more than one place only while
it answers, and leaves some to the others. Those that did not answer their last attempt share a few; of these, the ones
that answered before have one for themselves. Some places are for first attempts to origins that answer only.

Attempts to new origins leave their places after `PLACE_S` and continue without one. So new ones begin at a steady pace,
which limits the connections that are made at a time, and each one that hangs delays the others by a fraction of
`PLACE_S`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Coroutine
from operator import itemgetter
from typing import Any, Literal
from urllib.parse import urlsplit

import structlog

_log = structlog.get_logger(__name__)
AT_ONCE = 16
_KEPT_FREE = 4
"""Places for the first attempts to origins that answer, but one for those to each of the other kinds.

Origins that hang at the same moment, however many, leave them to others; origins that answer, however busy, leave one.
"""
_AT_ONCE_TO_SILENT = 4
"""Places for all origins together that did not answer their last attempt; each has one at most."""
PLACE_S = 0.2
"""Time after which an attempt to a new origin leaves its place and goes on waiting for its answer."""
_MOST_WAITING = 512
"""Limit of attempts that wait without a place: nearly as many as begin in the time of an attempt, and few compared with
the connections of clients."""
_MOST_ORIGINS = 4096
"""Limit of the origins that are remembered: of those that ever answered, and of the others."""
_MOST_KNOWN = 500
MOST_CONSIDERED = 1024
"""Limit of due messages that are read to fill the places, and of those to known origins beside them."""
Standing = Literal["answers", "missed", "silent", "new"]
"""Whether an origin answered its last attempt, not that but an earlier one, or none; `new` if it is not known."""


class Answers:
    """How each origin answered its last attempt. Those that were tried longest ago are forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, bool]] = {}
        """Origins that ever answered: those that never did must not crowd them out."""
        self._silent: dict[str, tuple[int, bool]] = {}
        self._ended = 0

    def record(self, origin: str, *, answered: bool) -> None:
        """Record the end of an attempt."""
        self._ended += 1
        group = self._known if answered or origin in self._known else self._silent
        self._silent.pop(origin, None)
        self._known.pop(origin, None)
        group[origin] = (self._ended, answered)
        if len(group) > _MOST_ORIGINS:
            del group[next(iter(group))]

    def last(self, origin: str) -> tuple[int, Standing]:
        """The number of the origin's last attempt, counted over all, and its standing; 0 if it is new."""
        if origin in self._known:
            number, answered = self._known[origin]
            return number, "answers" if answered else "missed"
        return (self._silent[origin][0], "silent") if origin in self._silent else (0, "new")

    def known(self) -> list[str]:
        """Origins that ever answered, the last ones that were tried."""
        return list(self._known)[-_MOST_KNOWN:]


class Attempts:
    """Attempts in progress. A context manager that at its end waits `end_s` for them, and then cancels them.

    Args:
        answers: how origins answered.
        looking_up: hosts whose names are being looked up.
        place_s: see `PLACE_S`.
        end_s: time that they have at the end, in seconds.
    """

    def __init__(self, answers: Answers, looking_up: Container[str | None], place_s: float, end_s: float) -> None:
        self.under_way: dict[asyncio.Task[None], tuple[str, float]] = {}
        """Their tasks, with the origin that each goes to and the time at which it began, on the loop's clock."""
        self._waiting: set[asyncio.Task[None]] = set()
        """Attempts that have left their places."""
        self.due: dict[str, str] = {}
        """Ids of messages that were due at the last look and not chosen since, with their origins."""
        self.look_again_at = 0.0
        self._answers, self._looking_up, self._place_s, self._end_s = answers, looking_up, place_s, end_s

    async def __aenter__(self) -> Attempts:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=self._end_s)
        for attempt in self.under_way:
            attempt.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)

    def choose(self) -> list[str]:
        """Take ids of the messages to begin now from those due, in the order of the module's docstring."""
        self._leave_places()
        holding = [origin for attempt, (origin, _) in self.under_way.items() if attempt not in self._waiting]
        if len(holding) >= AT_ONCE:
            return []
        places, ranked = Counter(origin for origin, _ in self.under_way.values()), []
        alike = Counter(self._answers.last(origin)[1] for origin in holding)
        for message_id, origin in self.due.items():
            ranked.append((places[origin], *self._answers.last(origin), message_id))
            places[origin] += 1
        ranked.sort(key=itemgetter(0, 1))
        chosen: list[str] = []
        for others, _, standing, message_id in ranked:
            free = AT_ONCE - len(holding) - len(chosen)
            if free and _may_begin(standing, others, alike[standing], free):
                alike[standing] += 1
                chosen.append(message_id)
                del self.due[message_id]
        return chosen

    def begin(self, origin: str, attempt: Coroutine[Any, Any, None]) -> None:
        """Run an attempt beside the others."""
        self.under_way[asyncio.create_task(attempt)] = origin, asyncio.get_running_loop().time()

    def _leave_places(self) -> None:
        """Let long attempts to new origins continue without a place, except during a look-up, of which few run."""
        before = asyncio.get_running_loop().time() - self._place_s
        for attempt, (origin, began) in self.under_way.items():
            may_leave = self._answers.last(origin)[1] == "new" and host_of(origin) not in self._looking_up
            if began <= before and may_leave and len(self._waiting) < _MOST_WAITING:
                self._waiting.add(attempt)

    async def wait_for_place(self, at_most_s: float) -> None:
        """Wait until an attempt ends, at most so long."""
        ended, _ = await asyncio.wait(self.under_way, timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
        for attempt in ended:
            origin, _ = self.under_way.pop(attempt)
            self._waiting.discard(attempt)
            if error := attempt.exception():  # one at a receiver must not stop the others
                _log.error("an attempt to deliver failed; it is tried again", host=host_of(origin), exc_info=error)


def _may_begin(standing: Standing, others: int, alike: int, free: int) -> bool:
    """Whether an attempt may take one of the free places.

    Args:
        standing: of its origin.
        others: attempts under way to that origin.
        alike: attempts that hold places, to all origins of that standing.
        free: number of free places, at least one.
    """
    if others:
        return standing == "answers" and free > _KEPT_FREE
    if standing == "answers" or not alike:
        return True
    return free > _KEPT_FREE and (standing == "new" or alike < _AT_ONCE_TO_SILENT)


def host_of(url: str) -> str | None:
    """Return the host of a URL, whose rest may contain secrets; None if it is not a URL, which the attempt reports."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
