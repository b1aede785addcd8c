"""State of the disk of the results folder, which counts as failing from the first failed write.

While it fails, jobs and requests that save or have an idempotency key are refused before any work. It counts as working
again once a probe file twice as large as the largest failed write was written and synced. If the spool is on another
file system, a file as large as that write, or as half of that file system, must fit there, too.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from service.core.errors import NotReady
from service.saving.local_disk.disk import Disk

_log = structlog.get_logger(__name__)
INCOMING = ".incoming"
"""Folder for unfinished files, in the file system of the results; it is emptied at start."""
SPOOL_PROBE = "probe"
"""Name of the probe file in a process's folder of the spool."""
_MIN_PROBE_BYTES = 128 * 2**10
_MAX_PROBE_BYTES = 32 * 2**20
_MAX_RETRY_S = 60.0


class DiskState:
    """The state of the disk as one process knows it. Thread-safe; only `probe_if_suspected` blocks.

    Args:
        directory: the results folder.
        name: name of the probe file, unique to this process.
        disk: the disk operations.
        now: a monotonic clock, in seconds.
        spool: this process's folder of the spool; None if it has none.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "probe",
        disk: Disk | None = None,
        now: Callable[[], float] = time.monotonic,
        spool: Path | None = None,
    ) -> None:
        self._probe = directory / INCOMING / name
        self._directory = directory
        self._spool = spool
        self._disk = disk or Disk()
        self._now = now
        self._lock = threading.Lock()  # guards all attributes below; reading `_why` alone needs no lock
        self._why = ""
        self._since = 0.0
        self._suspected = False
        self._failures = 0
        self._largest = 0

    @property
    def failure_reason(self) -> str:
        """The system's error while the disk fails; empty while it works."""
        return self._why

    def record_failure(self, error: OSError, size: int = 0) -> NotReady:
        """Record a failed write of about `size` bytes, and return the error for its request."""
        with self._lock:
            first = not self._why
            self._why = error.strerror or str(error) or type(error).__name__
            self._since = self._now() if first else self._since
            self._failures += 1
            self._largest = max(self._largest, size)
        if first:  # one line per outage
            _log.error(
                "the disk does not accept results; requests that must be saved are refused until it does",
                error=self._why,
            )
        return self._refusal_error(self._why)

    def suspect_failure(self, size: int = 0) -> None:
        """Record a failure that may be the disk's fault; the next `probe_if_suspected` then writes `size` bytes."""
        with self._lock:
            self._suspected = True
            self._largest = max(self._largest, size)

    def refuse_if_failing(self) -> None:
        """Refuse a request that must be saved, if the disk fails.

        Raises:
            NotReady: code `storage_unavailable`.
        """
        if why := self._why:
            raise self._refusal_error(why)

    def probe_if_suspected(self) -> bool:
        """Probe the disk if it failed, may have failed, or is full; True if it has just recovered."""
        with self._lock:
            failures, size, doubted, failed = self._failures, self._largest, self._suspected, bool(self._why)
            self._suspected = False
        if not (failed or doubted or self._is_full()):
            return False
        try:
            self._probe.parent.mkdir(parents=True, exist_ok=True)
            # twice the size, because a result is in both the spool and the storage for a while
            self._write_probe(self._probe, 2 * size)
            if failed and self._spool is not None and _is_elsewhere(self._spool, self._probe.parent):
                # a result that is larger than this file system will never fit, and is no reason to refuse others
                self._write_probe(self._spool / SPOOL_PROBE, int(min(size, _total_bytes(self._spool) / 2)))
        except OSError as error:
            self.record_failure(error)
            return False
        with self._lock:
            if self._failures != failures:  # a write failed during the probe
                return False
            back, lasted_s = bool(self._why), self._now() - self._since
            self._why, self._largest = "", 0
        if not back:
            return False
        _log.info("the disk accepts results again", after_s=round(lasted_s, 1))
        return True

    def _refusal_error(self, why: str) -> NotReady:
        """Return the error of a refused request; its Retry-After is the duration of the outage so far, 1 to 60 s."""
        return NotReady(
            f"results cannot be saved now ({why})",
            code="storage_unavailable",
            advice="try again later, or send save=false and no Idempotency-Key",
            retry_after_s=min(_MAX_RETRY_S, max(1.0, self._now() - self._since)),
        )

    def _is_full(self) -> bool:
        """Return whether the file system reports too little free space, to detect it before a write fails."""
        try:
            return _free_bytes(self._directory) < _MIN_PROBE_BYTES
        except FileNotFoundError:  # the folder was removed: the next write creates it again
            return False
        except OSError:
            return True

    def _write_probe(self, path: Path, size: int) -> None:
        """Write and sync a probe file of about that size, and remove it; fail at once if there is less free space."""
        size = min(_MAX_PROBE_BYTES, max(_MIN_PROBE_BYTES, size))
        if 0 < _free_bytes(path.parent) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            self._disk.write(path, bytes(size))
            self._disk.sync_directory(path.parent)
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _free_bytes(folder: Path) -> float:
    """Return the free bytes that a file system reports; 0 if it is read-only, infinity if it reports none."""
    facts = os.statvfs(folder)
    if facts.f_flag & os.ST_RDONLY:
        return 0.0
    blocks = facts.f_bfree if os.geteuid() == 0 else facts.f_bavail  # some blocks are reserved for root
    return float(blocks * facts.f_frsize) if facts.f_blocks else math.inf


def _total_bytes(folder: Path) -> float:
    """Return the bytes that a file system reports as its size; infinity if it reports none."""
    facts = os.statvfs(folder)
    return float(facts.f_blocks * facts.f_frsize) or math.inf


def _is_elsewhere(folder: Path, other: Path) -> bool:
    """Return whether a folder is on another file system; False if it was removed: the next write creates it again."""
    with suppress(FileNotFoundError):
        return folder.stat().st_dev != other.stat().st_dev
    return False
