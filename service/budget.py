"""A budget that requests share: how much decoded picture may be in memory at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Hands out shares in the order they were asked for. Used on the event loop only."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """What is handed out now."""
        return self._taken

    @asynccontextmanager
    async def share(self, wanted: int) -> AsyncIterator[None]:
        """Hold a share, after waiting for it; one larger than the whole budget is handed out alone."""
        wanted = min(wanted, self._total)
        if self._waiting or self._taken + wanted > self._total:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((wanted, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # it came in the same moment
                    self._give_back(wanted)
                else:
                    self._hand_out()
                raise
        else:
            self._taken += wanted
        try:
            yield
        finally:
            self._give_back(wanted)

    def _give_back(self, share: int) -> None:
        self._taken -= share
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            share, turn = self._waiting[0]
            if not turn.cancelled():  # else nobody waits for it any more
                if self._taken + share > self._total:
                    return
                self._taken += share
                turn.set_result(None)
            self._waiting.popleft()
