"""Accepts finished results, and makes them durable behind the reply: an accepted result is never dropped.

Room is reserved at admission (`reserve`), so that a full spool refuses new work before anything is computed. A finished
result is handed over (`put`): it is spooled on disk, where it outlives the process and every process that shares the
folder can read it, and only then promised to the client. Writers bring it to the storage, many at once (writers.py).
What a dead process left is taken up by the others, or by the next start. A disk that does not take a result into the
spool ends its request, and nothing more is promised until it does again (disk_state.py).
"""

from __future__ import annotations

from typing import Any

import structlog

from service.saving.backlog import Backlog
from service.saving.finding import ResultFinder
from service.saving.local_disk.disk_state import DiskState
from service.saving.results import Clock, Reservation, SaveObserver, StoredResult, Unobserved
from service.saving.spool.capacity import Backoff, SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.storage.contract import Storage
from service.saving.trust import SpoolTrust, UnsavedCounts
from service.saving.writers import Writers

_log = structlog.get_logger(__name__)


class ResultStore:
    """Accepts results and makes them durable soon. Thread-safe; `put`, `get`, `sidecar` and `inherit` block."""

    def __init__(  # noqa: PLR0913 -- parts that tests replace
        self,
        storage: Storage,
        spool_files: SpoolFiles,
        limits: SpoolLimits,
        *,
        disk: DiskState | None = None,
        threads: int = 2,
        observer: SaveObserver | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._spooled = spool_files
        self.disk = disk or DiskState(spool_files.owner.root, spool_files.owner.id)
        self._clock = clock or Clock()
        self._backlog = Backlog(limits, storage.max_group_size, self._clock)
        self._finder = ResultFinder(self._backlog.waiting, spool_files, storage)
        self._trust = SpoolTrust(spool_files, storage, self.disk)
        self._writers = Writers(
            threads,
            self._backlog,
            self._finder,
            self._trust,
            self.disk,
            observer or Unobserved(),
            backoff or Backoff(),
        )

    def start(self) -> ResultStore:
        """Open the spool, take up what dead processes left, and start the writers.

        Raises:
            OSError: the spool cannot be made.
        """
        self._spooled.open()
        self.inherit()
        self._writers.start()
        return self

    def __enter__(self) -> ResultStore:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def reserve(self, bytes_estimate: int) -> Reservation:
        """Promise room for one result; call it at admission, before any work.

        Raises:
            Overloaded: code `spool_full`, with `retry_after_s` from how fast results were saved lately.
            NotReady: code `storage_unavailable`: the disk takes nothing now.
            ShuttingDown: the store is closed.
        """
        self.disk.refuse()
        return self._backlog.reserve(bytes_estimate)

    def put(self, reservation: Reservation, result: StoredResult) -> None:
        """Accept a finished result, which is spooled when this returns; the writers make it durable.

        Blocks for a write that waits for no device: about 0.1 ms for 100 KB.

        Raises:
            ValueError, TypeError: a bad id or media type, a used reservation, a sidecar that is not JSON: a bug of
                the caller. Nothing was accepted and the reservation stays open.
            NotReady: code `storage_unavailable`: the disk does not take it; the reservation is given back.
            ShuttingDown: the store is closed.
        """
        sidecar = result.sidecar_without_digest(self._clock.wall())
        self._backlog.use(reservation, result.id)
        try:
            self._spooled.write(result.id, result.body, sidecar)
        except OSError as error:
            self._backlog.give_back(reservation)
            raise self.disk.failed(error, len(result.body)) from error
        self._backlog.accept(reservation, result)

    def inherit(self) -> int:
        """Take up what dead processes left; how many results that were. A disk that fails is asked again next time."""
        taken = 0
        try:
            for result_id, spooled in self._spooled.inherit():
                self._backlog.inherit(result_id, len(spooled.body))
                taken += 1
        except OSError as error:
            _log.warning("the spool of a dead process cannot be read; it is tried again", error=str(error))
        if taken:
            _log.info("results of a dead process taken up", results=taken)
        return taken

    def get(self, result_id: str) -> tuple[bytes, str] | None:
        """The image and its media type, durable or not yet; None where there is none. Raises as `Storage.read`."""
        return self._finder.image(result_id)

    def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """What is known of a result, durable or not yet; None where there is none. Raises as `get`."""
        return self._finder.sidecar(result_id)

    def look(self) -> None:
        """Try a disk that failed; once it takes results again, those that wait are saved without a pause."""
        self._writers.look()

    def left(self) -> UnsavedCounts:
        """What becomes of accepted results if the process ends now; those lost before are counted, too."""
        return self._trust.left(self._backlog.everyone(), self._backlog.lost)

    @property
    def pending(self) -> int:
        """Accepted results that are not durable yet."""
        return self._backlog.items

    @property
    def pending_bytes(self) -> int:
        """Their bytes."""
        return self._backlog.bytes

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the oldest of them was accepted; 0 when there is none."""
        return self._backlog.oldest_age_s

    def flush(self, timeout_s: float) -> int:
        """Wait until every accepted result is durable; a failing disk is tried again at once, and with short pauses.

        Returns:
            How many results are left: 0, unless the time ran out.
        """
        return self._backlog.wait_until_empty(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the writers after the file they are at; `flush` first. Calling it twice is allowed.

        A writer that hangs in the disk longer than `timeout_s` is left behind: it does not keep the process alive.
        """
        self._backlog.close()
        self._writers.join(timeout_s)
        self._spooled.close()
