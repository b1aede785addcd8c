"""Shares of the event loop's time: work that runs on the loop lets it serve its sockets in between.

The loop runs all ready callbacks before it polls its sockets again. Hundreds of requests that arrive at once would be
prepared in one iteration, and disconnects and refusals would be handled only afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque

SHARES_OF_AN_ITERATION = 4
"""Shares in one iteration, about a millisecond of preparing small pictures; a larger picture uses all of them."""


class LoopShares:
    """Limits the work in each iteration of the event loop, first come, first served. Used on the event loop only."""

    def __init__(self, shares: int = SHARES_OF_AN_ITERATION) -> None:
        self._shares = shares
        self._left = shares
        """Unused shares of this iteration."""
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        """Waiting callers, with the number of shares that each needs."""
        self._next_iteration: asyncio.Handle | None = None

    async def take(self, shares: int = 1) -> None:
        """Wait for an iteration of the event loop that has shares left, and use `shares` of them.

        The last caller of an iteration may use more than are left. A cancelled caller uses none.
        """
        loop = asyncio.get_running_loop()
        if self._next_iteration is None:
            self._next_iteration = loop.call_soon(self._begin_iteration)
        if self._left > 0 and not self._waiting:
            self._left -= shares
            return
        ready: asyncio.Future[None] = loop.create_future()
        self._waiting.append((ready, shares))
        await ready

    def _begin_iteration(self) -> None:
        self._left, self._next_iteration = self._shares, None
        while self._waiting and self._left > 0:
            ready, wanted = self._waiting.popleft()
            if not ready.done():
                ready.set_result(None)
                self._left -= wanted
        if self._waiting:
            self._next_iteration = asyncio.get_running_loop().call_soon(self._begin_iteration)
