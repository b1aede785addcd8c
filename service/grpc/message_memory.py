"""The memory of messages that admission does not count: those that arrive, and replies that clients have not read.

gRPC delivers a message when it is complete, and its size is not known before. So a message that arrives takes a slot
of the largest size, and when all slots are taken, HTTP/2's flow control holds further messages back. A client gets at
most half of the slots, so that one that sends slowly leaves room for others. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from service.core.errors import Overloaded

_RETRY_S = 1.0


class MessageMemory:
    """Slots for arriving messages, and bytes of unread replies.

    Args:
        max_bytes: memory for arriving messages, and as much again for unread replies.
        message_bytes: the largest message.
    """

    def __init__(self, max_bytes: float, message_bytes: int) -> None:
        self.slots = max(2, int(max_bytes // message_bytes))
        self._slots_per_client = self.slots // 2
        self._arriving: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._max_unread = max(max_bytes, 2 * message_bytes)
        self._unread: Counter[str] = Counter()

    @asynccontextmanager
    async def arriving(self, client: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the block ends.

        Raises:
            Overloaded: replies that this client, or all, have not read take too much memory.
        """
        self._require_replies_read(client)
        await self._acquire_slot(client)
        try:
            yield
        finally:
            self._release_slot(client)

    @contextmanager
    def unread(self, client: str, nbytes: int) -> Iterator[None]:
        """Count a reply as unread for the length of the block, in which it is sent and the client reads it."""
        self._unread[client] += nbytes
        try:
            yield
        finally:
            self._unread[client] -= nbytes
            if not self._unread[client]:
                del self._unread[client]

    @property
    def usage(self) -> tuple[int, int, int]:
        """The slots taken, the messages that wait for one, and the bytes of unread replies."""
        return self._arriving.total(), len(self._waiting), self._unread.total()

    def _require_replies_read(self, client: str) -> None:
        if self._unread[client] > self._max_unread / 2 or self._unread.total() > self._max_unread:
            raise Overloaded(
                f"unread replies take {self._unread.total() / 2**20:.0f} MiB; read them first",
                retry_after_s=_RETRY_S,
            )

    async def _acquire_slot(self, client: str) -> None:
        if not self._waiting and self._has_slot_for(client):
            self._arriving[client] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((client, turn))
        self._wake()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was given just before the cancellation
                self._release_slot(client)
            else:
                self._waiting.remove((client, turn))
            raise

    def _release_slot(self, client: str) -> None:
        self._arriving[client] -= 1
        if not self._arriving[client]:
            del self._arriving[client]
        self._wake()

    def _has_slot_for(self, client: str) -> bool:
        return self._arriving.total() < self.slots and self._arriving[client] < self._slots_per_client

    def _wake(self) -> None:
        """Give free slots to the messages that have waited longest, unless their client holds half of all slots."""
        for entry in tuple(self._waiting):
            client, turn = entry
            if self._arriving.total() >= self.slots:
                return
            if not turn.done() and self._has_slot_for(client):  # a cancelled one removes itself
                self._waiting.remove(entry)
                self._arriving[client] += 1
                turn.set_result(None)
