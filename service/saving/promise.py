"""Holds a reply back until its results are in the durable storage (`--promise store`), or refuses to promise them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from service.core.call import Call
from service.core.errors import NotReady
from service.saving.store import ResultStore

_AWAY_AFTER_S = 1.0
"""Longer than the pause after a single failed attempt, so that one failure refuses no request."""
_LOOK_EVERY_S = 0.5
_LONGEST_RETRY_S = 60.0
_TO_ANSWER_S = 0.25
_TO_ANSWER_SHARE = 0.1
"""Time before the deadline that is kept for the refusal, in seconds and as a share of the time allowed."""


@dataclass(slots=True)
class StorePromise:
    """The replies of this process that promise what is in the storage. Used on the event loop."""

    store: ResultStore
    clock: Callable[[], float]
    """In seconds, as the deadlines of calls."""
    _attempts: int = 0

    @asynccontextmanager
    async def attempt(self, *, patient: bool = False) -> AsyncIterator[None]:
        """Compute a request in this block, and await `stored` at its end.

        While the storage fails, one request at a time is let in: what it computes stays in the spool, and shows
        whether the storage is back. One that is `patient` waits for its turn until it is cancelled.

        Raises:
            NotReady: code `storage_unavailable`: the storage fails, and another request waits for it already.
        """
        while self._attempts and self.store.failing_s >= _AWAY_AFTER_S:
            if patient:
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            raise self._unavailable("the storage of results accepts nothing now")
        self._attempts += 1
        try:
            yield
        finally:
            self._attempts -= 1

    async def stored(self, result_ids: Collection[str], call: Call) -> float:
        """Wait until these results of this process are stored; returns for how long, in seconds.

        A call that `has_repeats` waits though it is cancelled, as its repeats would compute and store others.

        Raises:
            NotReady: code `storage_unavailable`: they were not, shortly before the deadline. They stay in the spool
                and are stored later.
        """
        storing = asyncio.ensure_future(self._stored(result_ids, call))
        try:
            return await (asyncio.shield(storing) if call.has_repeats else storing)
        except asyncio.CancelledError:
            return await storing
        finally:
            del storing  # it keeps an error, whose traceback has this frame

    async def _stored(self, result_ids: Collection[str], call: Call) -> float:
        began, loop = self.clock(), asyncio.get_running_loop()
        left, all_stored = set(result_ids), asyncio.Event()

        def tick_off(result_id: str) -> None:
            left.discard(result_id)
            if not left:
                all_stored.set()

        def tell(result_id: str, _lag_s: float) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(tick_off, result_id)

        for result_id in result_ids:
            if not self.store.call_when_saved(result_id, partial(tell, result_id)):
                tick_off(result_id)
        if left:
            kept_s = min(_TO_ANSWER_S, _TO_ANSWER_SHARE * (call.deadline - call.received_at))
            try:
                await asyncio.wait_for(all_stored.wait(), max(0.0, call.deadline - kept_s - began))
            except asyncio.TimeoutError:
                raise self._unavailable(
                    "the result was computed, but the storage of results did not accept it in time; "
                    "it is stored later, and nothing is promised"
                ) from None
        return self.clock() - began

    def _unavailable(self, why: str) -> NotReady:
        retry_after_s = min(_LONGEST_RETRY_S, max(1.0, self.store.failing_s))
        return NotReady(f"{why}; try again later", code="storage_unavailable", retry_after_s=retry_after_s)
