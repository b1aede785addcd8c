"""Accepts finished results and makes them durable after the reply; an accepted result is never dropped.

Spool space is reserved at admission (`reserve`), so that a full spool refuses new work before anything is computed.
`put` writes a finished result to the spool on disk, where it survives the process and is readable by every process that
shares the folder; only then is it promised to the client. Writers move results to the storage in groups (writers.py).
Other processes, or the next start, save the results of a dead process. If a write to the spool fails, its request
fails, and no results are promised until the disk works again (disk_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import structlog

from service.ledger.contract import Connections
from service.saving.backlog import Backlog
from service.saving.index import ResultIndex, ledger_file
from service.saving.local_disk.disk_state import DiskState
from service.saving.result_finder import ResultFinder
from service.saving.results import Clock, SaveObserver, SpoolReservation, StoredResult, Unobserved
from service.saving.spool.capacity import Backoff, SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool_safeguard import SpoolSafeguard, UnsavedCounts
from service.saving.storage.contract import Storage
from service.saving.write_queue import GATHER_S
from service.saving.writers import Writers

_log = structlog.get_logger(__name__)


class ResultStore:
    """Accepts results and makes them durable later. Thread-safe; `put`, `get`, `sidecar` and `inherit` block."""

    def __init__(  # noqa: PLR0913 -- parts that tests replace
        self,
        storage: Storage,
        spool_files: SpoolFiles,
        limits: SpoolLimits,
        ledger: Connections | None = None,
        *,
        disk: DiskState | None = None,
        threads: int = 2,
        observer: SaveObserver | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        gather_s: float = GATHER_S,
    ) -> None:
        self._spooled = spool_files
        owner = spool_files.owner
        self.disk = disk or DiskState(owner.root, owner.id, spool=owner.folder)
        self._clock = clock or Clock()
        self.index = ResultIndex(ledger or ledger_file(owner.root), lambda: self._clock.wall().timestamp())
        self._backlog = Backlog(limits, storage.max_group_size, self._clock, gather_s)
        self._finder = ResultFinder(self._backlog.waiting, spool_files, storage, self.index)
        self._safeguard = SpoolSafeguard(spool_files, storage, self.disk, self.index)
        self._writers = Writers(
            threads,
            self._backlog,
            self._finder,
            self._safeguard,
            self.disk,
            observer or Unobserved(),
            backoff or Backoff(),
        )

    def start(self) -> ResultStore:
        """Open the spool, queue the results of dead processes, and start the writers.

        Raises:
            OSError: the spool cannot be created.
            SettingsInvalid: the ledger cannot be opened.
        """
        self._spooled.open()
        self.index.open()
        self.inherit()
        self._writers.start()
        return self

    def __enter__(self) -> ResultStore:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def reserve(self, bytes_estimate: int) -> SpoolReservation:
        """Reserve spool space for one result; call it at admission, before any work.

        Raises:
            Overloaded: code `spool_full`, with `retry_after_s` from the recent rate of saving.
            NotReady: code `storage_unavailable`: the disk rejects writes now.
            ShuttingDown: the store is closed.
        """
        self.disk.refuse_if_failing()
        return self._backlog.reserve(bytes_estimate)

    def put(self, reservation: SpoolReservation, result: StoredResult) -> None:
        """Accept a finished result. It is spooled when this returns; the writers make it durable.

        Blocks for a write to the page cache: about 0.1 ms for 100 KB.

        Raises:
            ValueError, TypeError: a bug of the caller: invalid id or media type, used reservation, or a sidecar that is
                not JSON. Nothing was accepted, and the reservation stays open.
            NotReady: code `storage_unavailable`: the disk rejects the result; the reservation is released.
            ShuttingDown: the store is closed.
        """
        sidecar = result.sidecar_without_digest(self._clock.wall())
        self._backlog.use_reservation(reservation, result.id)
        try:
            self._spooled.write(result.id, result.body, sidecar)
        except OSError as error:
            self._backlog.free_used_reservation(reservation)
            raise self.disk.record_failure(error, len(result.body)) from error
        except Exception:  # the sidecar cannot be encoded
            self._backlog.reopen(reservation)
            raise
        self._backlog.enqueue_spooled(reservation, result)
        self.index.announce(sidecar)

    def inherit(self) -> int:
        """Queue the results of dead processes; returns their number. If the disk fails, the next call tries again."""
        taken = 0
        try:
            for result_id, spooled in self._spooled.inherit():
                self._backlog.inherit(result_id, len(spooled.body))
                self.index.announce(spooled.sidecar)
                taken += 1
        except OSError as error:
            _log.warning("the spool of a dead process cannot be read; retrying", error=str(error))
        if taken:
            _log.info("results of a dead process recovered", results=taken)
        return taken

    def get(self, result_id: str) -> tuple[bytes, str] | None:
        """Return a result's image and media type, durable or not; None if there is none.

        Raises:
            NotReady, ServiceError: as raised by `Storage.read`.
        """
        return self._finder.image(result_id)

    def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """Return the sidecar of a result, durable or not; None if there is none. Raises as `get` does."""
        return self._finder.sidecar(result_id)

    def remove(self, result_id: str) -> None:
        """Remove every copy of a result whose tombstone is in the index. May be repeated.

        Raises:
            OSError: a copy cannot be removed now.
        """
        self._finder.remove(result_id)

    @property
    def storage(self) -> Storage:
        """The durable storage."""
        return self._finder.storage

    def spooled_ids(self) -> set[str]:
        """Return the ids of all results in the spools of all processes. Raises as `SpoolFiles.ids` does."""
        return self._spooled.ids()

    def probe_disk(self) -> None:
        """Probe a disk that failed; once it works again, waiting results are saved without a pause.

        First the space of saved results in the spool is freed, and that which deletions need on a full disk reserved.
        """
        if self.disk.failure_reason:
            with suppress(OSError):
                self._spooled.free_removed()
        self.index.connections.restore_reserve()
        self._writers.probe_disk()

    def count_unsaved(self) -> UnsavedCounts:
        """Count the accepted results by their state if the process ended now, including those already lost."""
        return self._safeguard.count_unsaved(self._backlog.all_unsaved(), self._backlog.lost_results)

    def unsaved_among(self, result_ids: Sequence[str]) -> bool:
        """Return whether any of the results was accepted by this process and is not durable yet."""
        return any(result_id in self._finder.waiting for result_id in result_ids)

    def spooled_among(self, result_ids: Sequence[str]) -> bool:
        """Return whether any of the results is in a process's spool, and perhaps only there. Raises as `get` does."""
        return any(self._finder.spooled(result_id) for result_id in result_ids)

    def call_when_saved(self, result_id: str, call: Callable[[float], None]) -> bool:
        """Register `call`, to be called on a writer's thread with the seconds since `put` once the result is durable.

        Returns:
            False if no result with that id waits here, as when it is already durable; `call` is then never called.
        """
        return self._backlog.call_when_saved(result_id, call)

    @property
    def failing_s(self) -> float:
        """Seconds for which all attempts to make results durable have failed; 0 if the last one succeeded."""
        return self._writers.failing_s

    @property
    def why_failing(self) -> str:
        """The error of the last attempt to make a result durable; empty if it succeeded."""
        return self._writers.why_failing

    @property
    def pending(self) -> int:
        """Number of accepted results that are not durable yet."""
        return self._backlog.items

    @property
    def pending_bytes(self) -> int:
        """Size of the accepted results that are not durable yet, in bytes."""
        return self._backlog.bytes

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the oldest pending result was accepted; 0 if there is none."""
        return self._backlog.oldest_age_s

    def flush(self, timeout_s: float) -> int:
        """Wait until every accepted result is durable; a failing disk is retried at once and with short pauses.

        Returns:
            The number of results that are not durable: 0 unless the time ran out.
        """
        return self._backlog.wait_until_empty(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the writers after their current group; call `flush` first. May be called twice.

        A writer that hangs in a disk operation for longer than `timeout_s` is abandoned; it does not keep the process
        alive.
        """
        self._backlog.close()
        self._writers.join(timeout_s)
        self._spooled.close()
        self.index.close()
