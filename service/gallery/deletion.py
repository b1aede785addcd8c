"""Deletion of results: the tombstone first, then every copy, repeated until none is left.

The tombstone is committed and synced before anything is removed. A process that stores a copy at the same time finds
the tombstone afterwards and removes its copy; copies that a killed process left are removed by `finish`, in any
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from service.core.errors import Gone, NotFound, ServiceError
from service.gallery.thumbnails import ThumbnailFiles
from service.ledger.contract import Transaction
from service.saving import index_table
from service.saving.retention import RetryOrder
from service.saving.storage.contract import is_result_id
from service.saving.store import ResultStore

_log = structlog.get_logger(__name__)
_OWN_TIME_S = 5.0
"""Seconds that the request itself has to remove all copies, before other processes do it."""
_TOMBSTONE_S = 90 * 86_400.0
"""Age in seconds at which a tombstone without copies is removed; later requests get 404 instead of 410."""
_CLOCK_SLACK_S = 300.0
"""Difference between the clocks of hosts that is not taken for a clock that was set back."""
_BATCH = 100


@dataclass(slots=True)
class Deletion:
    """Deletes results for their owners. Used on the event loop."""

    store: ResultStore
    thumbnails: ThumbnailFiles
    forget: Sequence[Callable[[str], Awaitable[None]]]
    """Each removes the copies of a result that another room keeps; may raise OSError and ServiceError."""
    now: Callable[[], float]
    """Wall clock, in seconds since the epoch."""
    late_write_s: float
    """Time after which no storage still completes a write that was begun before the deletion, in seconds."""
    left: int = field(default=0, init=False)
    """Number of deleted results that still had copies at the end of the last `finish`."""
    _order: RetryOrder = field(default_factory=RetryOrder, init=False)

    async def delete(self, result_id: str, owner: str) -> bool:
        """Delete a result; returns whether all copies are removed: if not, `finish` removes the others.

        Raises:
            NotFound: the owner has no such result.
            Gone: the result was deleted before.
            NotReady: code `ledger_unavailable`, `storage_unavailable`: nothing was deleted.
        """
        await asyncio.to_thread(self._bury, result_id, owner)
        _log.info("result deleted", result=result_id, owner=owner)
        return await self._remove(result_id)

    async def finish(self) -> None:
        """Remove the copies that deletions left because their process was killed or a storage failed.

        The copies of every deleted result are removed once more after `late_write_s`, because a storage may complete a
        write that its client has given up.

        Raises:
            NotReady: code `ledger_unavailable`.
        """
        index, now = self.store.index, self.now()
        ahead = partial(index_table.any_deleted_after, moment=now + _CLOCK_SLACK_S)
        if await asyncio.to_thread(index.read, ahead):  # the clock was set back: do not wait until it is there again
            await asyncio.to_thread(index.write_removal, partial(index_table.date_back, now=now))
        work = partial(
            index_table.to_remove,
            once_before=now - _OWN_TIME_S,
            twice_before=now - self.late_write_s,
            limit=_BATCH + len(self._order),
        )
        for result_id in self._order.sort(await asyncio.to_thread(index.read, work)):
            removed = await self._remove(result_id)
            self._order.note(result_id, removed=removed)
            if not removed:
                break  # a storage that fails would keep each of the others waiting
        self.left = await asyncio.to_thread(index.read, index_table.unremoved)

    async def tidy(self) -> None:
        """Remove old tombstones, and thumbnails of results that no longer exist.

        Raises:
            NotReady, OSError: the ledger or the disk does not allow it now.
        """
        index = self.store.index
        drop = partial(index_table.drop_tombstones, deleted_before=self.now() - _TOMBSTONE_S)
        await asyncio.to_thread(index.write_removal, drop)

        def known(result_ids: list[str]) -> set[str]:
            return index.read(partial(index_table.known, result_ids=result_ids))

        await asyncio.to_thread(index.flush)
        await asyncio.to_thread(self.thumbnails.drop_orphans, known)

    def _bury(self, result_id: str, owner: str) -> None:
        index = self.store.index
        index.flush()
        row = index.find(result_id) if is_result_id(result_id) else None
        owner_id = row.owner if row is not None else self._owner_of(result_id)
        if owner_id != owner:
            raise no_result(result_id)
        if (row is not None and row.deleted) or not index.bury(result_id, owner):
            raise gone(result_id)

    def _owner_of(self, result_id: str) -> str | None:
        """The owner of a result that is not in the index; None if the result does not exist."""
        sidecar = self.store.sidecar(result_id)
        return None if sidecar is None else str(sidecar.get("owner", ""))

    async def _remove(self, result_id: str) -> bool:
        errors = [
            await _error_of(asyncio.to_thread(self.store.remove, result_id)),
            await _error_of(asyncio.to_thread(self.thumbnails.drop, result_id)),
            *[await _error_of(forget(result_id)) for forget in self.forget],
        ]
        if not any(errors):
            count = asyncio.to_thread(self.store.index.write_removal, partial(_count_removal, result_id))
            errors = [await _error_of(count)]
        error = next(filter(None, errors), None)
        if error:
            _log.warning("copies of a deleted result cannot be removed; retrying", result=result_id, error=str(error))
        return error is None


async def _error_of(step: Awaitable[None]) -> Exception | None:
    """Return the error of a step of a removal, which must not stop the other steps."""
    try:
        await step
    except (OSError, ServiceError) as error:
        return error
    return None


def _count_removal(result_id: str, ledger: Transaction) -> None:
    index_table.removed(ledger, result_id)


def no_result(result_id: str) -> NotFound:
    """The error for a result that does not exist, or that a client may not see."""
    return NotFound(f"no result {result_id[:80]!r}")


def gone(result_id: str) -> Gone:
    """The error for a result that its owner has deleted."""
    return Gone(f"result {result_id} was deleted")
