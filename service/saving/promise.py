"""Delays replies until their results are in the durable storage (`--promise store`), or refuses their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from service.core.call import Call
from service.core.errors import NotReady
from service.saving.store import ResultStore

_UNAVAILABLE_AFTER_S = 1.0
"""Seconds of failure from which requests are refused; longer than the pause after a single failed attempt."""
_POLL_INTERVAL_S = 0.5
_MAX_RETRY_S = 60.0
_REPLY_MARGIN_S = 0.25
_REPLY_MARGIN_SHARE = 0.1
"""Time before the deadline that is reserved for a refusal: the smaller of seconds and a share of the time allowed."""


@dataclass(slots=True)
class StorePromise:
    """Delays this process's replies until their results are in the storage. Used on the event loop."""

    store: ResultStore
    clock: Callable[[], float]
    """Clock of the calls' deadlines, in seconds."""
    _attempts: int = 0

    @asynccontextmanager
    async def attempt(self, *, wait_for_turn: bool = False) -> AsyncIterator[None]:
        """Admit a request, which is computed in the block; the block must end with `stored`.

        While the storage fails, one request at a time is admitted: its results stay in the spool, and their save shows
        whether the storage works again. With `wait_for_turn` a request waits for its turn until it is cancelled.

        Raises:
            NotReady: code `storage_unavailable`: the storage fails, and another request is already waiting for it.
        """
        while self._attempts and self.store.failing_s >= _UNAVAILABLE_AFTER_S:
            if wait_for_turn:
                await asyncio.sleep(_POLL_INTERVAL_S)
                continue
            raise self._unavailable("the storage of results is unavailable")
        self._attempts += 1
        try:
            yield
        finally:
            self._attempts -= 1

    async def stored(self, result_ids: Collection[str], call: Call) -> float:
        """Wait until results of this process are stored; returns the time waited, in seconds.

        A call that `has_repeats` waits even if it is cancelled, as its repeats would otherwise compute new results.

        Raises:
            NotReady: code `storage_unavailable`: they were not stored in time for the deadline. They stay in the spool
                and are stored later.
        """
        storing = asyncio.ensure_future(self._stored(result_ids, call))
        try:
            return await (asyncio.shield(storing) if call.has_repeats else storing)
        except asyncio.CancelledError:
            return await storing
        finally:
            del storing  # breaks a cycle: task, error, traceback, this frame

    async def _stored(self, result_ids: Collection[str], call: Call) -> float:
        began, loop = self.clock(), asyncio.get_running_loop()
        left, all_stored = set(result_ids), asyncio.Event()

        def tick_off(result_id: str) -> None:
            left.discard(result_id)
            if not left:
                all_stored.set()

        def tell(result_id: str, _lag_s: float) -> None:
            with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
                loop.call_soon_threadsafe(tick_off, result_id)

        for result_id in result_ids:
            if not self.store.call_when_saved(result_id, partial(tell, result_id)):
                tick_off(result_id)
        if left:
            margin_s = min(_REPLY_MARGIN_S, _REPLY_MARGIN_SHARE * (call.deadline - call.received_at))
            try:
                await asyncio.wait_for(all_stored.wait(), max(0.0, call.deadline - margin_s - began))
            except asyncio.TimeoutError:
                raise self._unavailable(
                    "the result was computed, but the storage of results did not accept it in time; it is listed, and "
                    "will be stored later, without a guarantee; a repeat with the same Idempotency-Key gets it, any "
                    "other repeat makes another result"
                ) from None
        return self.clock() - began

    def _unavailable(self, why: str) -> NotReady:
        retry_after_s = min(_MAX_RETRY_S, max(1.0, self.store.failing_s))
        return NotReady(f"{why}; try again later", code="storage_unavailable", retry_after_s=retry_after_s)
