"""Choice of the messages to attempt next. Receivers that hang, however many, delay only their own messages.

A receiver is an origin: scheme, host and port. A process has `AT_ONCE` places for concurrent attempts. The next attempt
goes to the origin with the fewest attempts under way; among equals, to the one that was tried longest ago. An origin
gets a second place only while it answers and more than `_KEPT_FREE` places are free. These kept places are for the
first attempt to an origin that answers, and for one attempt to each other kind of origin (`Standing`). Origins that did
not answer their last attempt share `_AT_ONCE_TO_SILENT` places of each kind.

An attempt to a new origin gives up its place after `PLACE_S` and continues without one. So attempts to new origins
begin at a steady rate, which limits concurrent connections, and one that hangs delays others by a fraction of
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
"""Places kept for the first attempt to an origin that answers; each other kind of origin may use one of them.

However many origins hang at once, they leave these places free for others.
"""
_AT_ONCE_TO_SILENT = 4
"""Limit of places for all `missed` origins together, and for all `silent` ones; each origin has at most one."""
PLACE_S = 0.2
"""Time in seconds after which an attempt to a new origin gives up its place and goes on waiting for its answer."""
_MOST_WAITING = 512
"""Limit of attempts without a place: nearly as many as begin in the time limit of one attempt, and few compared with
the connections of clients."""
_MOST_ORIGINS = 4096
"""Limit of remembered origins that ever answered, and of remembered origins that never did."""
_MOST_KNOWN = 500
MOST_CONSIDERED = 1024
"""Limit of due messages read to fill the places; as many again may be read for known origins."""
Standing = Literal["answers", "missed", "silent", "new"]
"""`answers`: the origin answered its last attempt; `missed`: only an earlier one; `silent`: none; `new`: not known."""


class Answers:
    """Record of whether each origin answered its last attempt; origins that were tried longest ago are forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, bool]] = {}
        """Origins that ever answered, kept apart so that origins that never did cannot crowd them out."""
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
        """Return the number of the origin's last attempt, counted over all origins (0: none), and its standing."""
        if origin in self._known:
            number, answered = self._known[origin]
            return number, "answers" if answered else "missed"
        return (self._silent[origin][0], "silent") if origin in self._silent else (0, "new")

    def known(self) -> list[str]:
        """Return the most recently tried origins that ever answered, at most `_MOST_KNOWN`."""
        return list(self._known)[-_MOST_KNOWN:]


class Attempts:
    """Attempts in progress; a context manager, whose exit waits `end_s` for them and then cancels them.

    Args:
        answers: the record of how origins answered.
        looking_up: hosts whose names are being resolved.
        place_s: see `PLACE_S`.
        end_s: time that attempts have to finish at the exit, in seconds.
    """

    def __init__(self, answers: Answers, looking_up: Container[str | None], place_s: float, end_s: float) -> None:
        self.under_way: dict[asyncio.Task[None], tuple[str, float]] = {}
        """Tasks of the attempts, each with its origin and its start time on the loop's clock."""
        self._waiting: set[asyncio.Task[None]] = set()
        """Attempts that have given up their places."""
        self.due: dict[str, str] = {}
        """Origins of messages that were due at the last query and not chosen since, by message id."""
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
        """Remove from `due` the messages to attempt now and return their ids; the module's docstring has the order."""
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
        """Start an attempt as a task."""
        self.under_way[asyncio.create_task(attempt)] = origin, asyncio.get_running_loop().time()

    def _leave_places(self) -> None:
        """Free the places of long attempts to new origins, except during DNS look-ups, whose number is limited."""
        before = asyncio.get_running_loop().time() - self._place_s
        for attempt, (origin, began) in self.under_way.items():
            may_leave = self._answers.last(origin)[1] == "new" and host_of(origin) not in self._looking_up
            if began <= before and may_leave and len(self._waiting) < _MOST_WAITING:
                self._waiting.add(attempt)

    async def wait_for_place(self, at_most_s: float) -> None:
        """Wait until an attempt ends, at most `at_most_s` seconds."""
        ended, _ = await asyncio.wait(self.under_way, timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
        for attempt in ended:
            origin, _ = self.under_way.pop(attempt)
            self._waiting.discard(attempt)
            if error := attempt.exception():  # one attempt's failure must not stop the others
                _log.error("an attempt to deliver failed; it is tried again", host=host_of(origin), exc_info=error)


def _may_begin(standing: Standing, others: int, alike: int, free: int) -> bool:
    """Return whether an attempt may take one of the free places.

    Args:
        standing: standing of the attempt's origin.
        others: number of other attempts to that origin, under way or due earlier.
        alike: number of attempts to any origin of that standing that hold places.
        free: number of free places, at least one.
    """
    if others:
        return standing == "answers" and free > _KEPT_FREE
    if standing == "answers" or not alike:
        return True
    return free > _KEPT_FREE and (standing == "new" or alike < _AT_ONCE_TO_SILENT)


def host_of(url: str) -> str | None:
    """Return the host of a URL for logs, as the rest may contain secrets; None if the URL is invalid."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
