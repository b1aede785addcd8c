"""Turns on the event loop: work that runs there lets the loop see to its sockets in between.

The loop runs all that is ready before it looks at its sockets again. Hundreds of requests that come at once would be
prepared in one go, and whoever hangs up meanwhile, or is to be refused, would be seen to only afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque

EACH_ROUND = 4
"""About a millisecond of preparing small pictures; a larger one takes all turns of a round."""


class Turns:
    """Lets a few through in each round of the loop, in the order they came. Used on the event loop only."""

    def __init__(self, each_round: int = EACH_ROUND) -> None:
        self._each_round = each_round
        self._left = each_round
        """Turns of this round that nobody has taken."""
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        """And how many turns each takes."""
        self._next_round: asyncio.Handle | None = None

    async def take(self, turns: int = 1) -> None:
        """Wait for a turn, or for what is left of several in a round; who is cancelled leaves them to the next."""
        loop = asyncio.get_running_loop()
        if self._next_round is None:
            self._next_round = loop.call_soon(self._begin_round)
        if self._left > 0 and not self._waiting:
            self._left -= turns
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((turn, turns))
        await turn

    def _begin_round(self) -> None:
        self._left, self._next_round = self._each_round, None
        while self._waiting and self._left > 0:
            turn, turns = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= turns
        if self._waiting:
            self._next_round = asyncio.get_running_loop().call_soon(self._begin_round)
