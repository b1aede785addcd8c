"""Shares of the event loop's time: work that runs on the loop lets it serve its sockets in between.

The loop runs all ready callbacks before it polls its sockets again. Hundreds of requests that arrive at once would be
prepared in one iteration, and disconnects and refusals would be handled only afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque

EACH_ROUND = 4
"""Shares in one iteration, about a millisecond of preparing small pictures; a larger picture uses all of them."""


class Turns:
    """Limits the work in each iteration of the event loop, first come, first served. Used on the event loop only."""

    def __init__(self, each_round: int = EACH_ROUND) -> None:
        self._each_round = each_round
        self._left = each_round
        """Unused shares of this iteration."""
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        """Waiting callers, with the number of shares that each needs."""
        self._next_round: asyncio.Handle | None = None

    async def take(self, turns: int = 1) -> None:
        """Wait for shares of an iteration; its last caller may exceed what is left. A cancelled caller uses none."""
        loop = asyncio.get_running_loop()
        if self._next_round is None:
            self._next_round = loop.call_soon(self._begin_round)
        if self._left > 0 and not self._waiting:
            self._left -= turns
            return
        ready: asyncio.Future[None] = loop.create_future()
        self._waiting.append((ready, turns))
        await ready

    def _begin_round(self) -> None:
        self._left, self._next_round = self._each_round, None
        while self._waiting and self._left > 0:
            ready, turns = self._waiting.popleft()
            if not ready.done():
                ready.set_result(None)
                self._left -= turns
        if self._waiting:
            self._next_round = asyncio.get_running_loop().call_soon(self._begin_round)
