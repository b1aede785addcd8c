"""Choice of the messages to attempt next. Receivers that hang, however many, delay only their own messages.

A receiver is an origin: scheme, host and port. A process has `MAX_CONCURRENT` slots for concurrent attempts. The next
attempt goes to the origin with the fewest attempts in flight; among equals, to the one that was tried longest ago. An
origin gets a second slot only while it answers and more than `_RESERVED_SLOTS` slots are free. These reserved slots are
for the first attempt to an origin that answers, and for one attempt to each other kind of origin (`OriginState`).
Origins that did not answer their last attempt share `_MAX_FOR_SILENT` slots of each kind.

An attempt to a new origin gives up its slot after `SLOT_S` and continues without one. So attempts to new origins
begin at a steady rate, which limits concurrent connections, and one that hangs delays others by a fraction of
`SLOT_S`.
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
MAX_CONCURRENT = 16
_RESERVED_SLOTS = 4
"""Slots reserved for the first attempt to an origin that answers; each other kind of origin may use one of them.

However many origins hang at once, they leave these slots free for others.
"""
_MAX_FOR_SILENT = 4
"""Limit of slots for all `missed` origins together, and for all `silent` ones; each origin has at most one."""
SLOT_S = 0.2
"""Time in seconds after which an attempt to a new origin gives up its slot and goes on waiting for its answer."""
_MAX_WITHOUT_SLOT = 512
"""Limit of attempts without a slot: nearly as many as begin in the time limit of one attempt, and few compared with
the connections of clients."""
_MAX_ORIGINS = 4096
"""Limit of remembered origins that ever answered, and of remembered origins that never did."""
_MAX_KNOWN = 500
MAX_CONSIDERED = 1024
"""Limit of due messages read to fill the slots; as many again may be read for known origins."""
OriginState = Literal["answers", "missed", "silent", "new"]
"""`answers`: the origin answered its last attempt; `missed`: only an earlier one; `silent`: none; `new`: not known."""


class OriginHistory:
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
        if len(group) > _MAX_ORIGINS:
            del group[next(iter(group))]

    def last(self, origin: str) -> tuple[int, OriginState]:
        """Return the number of the origin's last attempt, counted over all origins (0: none), and its state."""
        if origin in self._known:
            number, answered = self._known[origin]
            return number, "answers" if answered else "missed"
        return (self._silent[origin][0], "silent") if origin in self._silent else (0, "new")

    def known(self) -> list[str]:
        """Return the most recently tried origins that ever answered, at most `_MAX_KNOWN`."""
        return list(self._known)[-_MAX_KNOWN:]


class Attempts:
    """Attempts in progress; a context manager, whose exit waits `end_s` for them and then cancels them.

    Args:
        history: the record of how origins answered.
        looking_up: hosts whose names are being resolved.
        slot_s: see `SLOT_S`.
        end_s: time that attempts have to finish at the exit, in seconds.
    """

    def __init__(self, history: OriginHistory, looking_up: Container[str | None], slot_s: float, end_s: float) -> None:
        self.in_flight: dict[asyncio.Task[None], tuple[str, float]] = {}
        """Tasks of the attempts, each with its origin and its start time on the loop's clock."""
        self._without_slot: set[asyncio.Task[None]] = set()
        """Attempts that have given up their slots."""
        self.due: dict[str, str] = {}
        """Origins of messages that were due at the last query and not chosen since, by message id."""
        self.next_query_at = 0.0
        self._history, self._looking_up, self._slot_s, self._end_s = history, looking_up, slot_s, end_s

    async def __aenter__(self) -> Attempts:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.in_flight:
            await asyncio.wait(self.in_flight, timeout=self._end_s)
        for attempt in self.in_flight:
            attempt.cancel()
        await asyncio.gather(*self.in_flight, return_exceptions=True)

    def choose(self) -> list[str]:
        """Remove from `due` the messages to attempt now and return their ids; the module's docstring has the order."""
        self._release_slow_attempts()
        holding = [origin for attempt, (origin, _) in self.in_flight.items() if attempt not in self._without_slot]
        if len(holding) >= MAX_CONCURRENT:
            return []
        attempts_by_origin, ranked = Counter(origin for origin, _ in self.in_flight.values()), []
        same_state = Counter(self._history.last(origin)[1] for origin in holding)
        for message_id, origin in self.due.items():
            ranked.append((attempts_by_origin[origin], *self._history.last(origin), message_id))
            attempts_by_origin[origin] += 1
        ranked.sort(key=itemgetter(0, 1))
        chosen: list[str] = []
        for others, _, state, message_id in ranked:
            free = MAX_CONCURRENT - len(holding) - len(chosen)
            if free and _may_begin(state, others, same_state[state], free):
                same_state[state] += 1
                chosen.append(message_id)
                del self.due[message_id]
        return chosen

    def begin(self, origin: str, attempt: Coroutine[Any, Any, None]) -> None:
        """Start an attempt as a task."""
        self.in_flight[asyncio.create_task(attempt)] = origin, asyncio.get_running_loop().time()

    def _release_slow_attempts(self) -> None:
        """Free the slots of long attempts to new origins, except during DNS look-ups, whose number is limited."""
        before = asyncio.get_running_loop().time() - self._slot_s
        for attempt, (origin, began) in self.in_flight.items():
            releases = self._history.last(origin)[1] == "new" and host_of(origin) not in self._looking_up
            if began <= before and releases and len(self._without_slot) < _MAX_WITHOUT_SLOT:
                self._without_slot.add(attempt)

    async def wait_for_slot(self, at_most_s: float) -> None:
        """Wait until an attempt ends, at most `at_most_s` seconds."""
        ended, _ = await asyncio.wait(self.in_flight, timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
        for attempt in ended:
            origin, _ = self.in_flight.pop(attempt)
            self._without_slot.discard(attempt)
            if error := attempt.exception():  # one attempt's failure must not stop the others
                _log.error("delivery attempt failed; it will be retried", host=host_of(origin), exc_info=error)


def _may_begin(state: OriginState, others: int, same_state: int, free: int) -> bool:
    """Return whether an attempt may take one of the free slots.

    Args:
        state: state of the attempt's origin.
        others: number of other attempts to that origin, under way or due earlier.
        same_state: number of attempts to any origin of that state that hold slots.
        free: number of free slots, at least one.
    """
    if others:
        return state == "answers" and free > _RESERVED_SLOTS
    if state == "answers" or not same_state:
        return True
    return free > _RESERVED_SLOTS and (state == "new" or same_state < _MAX_FOR_SILENT)


def host_of(url: str) -> str | None:
    """Return the host of a URL for logs, as the rest may contain secrets; None if the URL is invalid."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
