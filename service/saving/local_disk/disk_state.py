"""Whether the disk under the results folder takes what is written to it: the first write that fails says no.

While it says no, nothing that would have to be written is promised: requests that save, jobs and idempotency keys are
refused before any work. What turns it back is a write of the same size that the disk has taken and synced, in a file of
its own, so that nobody's result is what it is tried with.
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
"""The folder for files that are not whole yet, in the same file system as the results; a start empties it."""
_TRIED_WITH_AT_LEAST = 128 * 2**10
_TRIED_WITH_AT_MOST = 32 * 2**20
_LONGEST_RETRY_S = 60.0


class DiskState:
    """What one process knows of the disk. Thread-safe; only `look` blocks.

    Args:
        directory: the results folder.
        name: of the file that the disk is tried with; no other process may have the same.
        disk: what writes.
        now: a monotonic clock, in seconds.
    """

    def __init__(
        self, directory: Path, name: str = "probe", disk: Disk | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._probe = directory / INCOMING / name
        self._directory = directory
        self._disk = disk or Disk()
        self._now = now
        self._lock = threading.Lock()  # guards all below; a look at `_why` alone needs none
        self._why = ""
        self._since = 0.0
        self._doubted = False
        self._failures = 0
        self._largest = 0

    @property
    def why(self) -> str:
        """Why nothing can be saved now, as the system says it; empty while the disk takes what is written."""
        return self._why

    def failed(self, error: OSError, size: int = 0) -> NotReady:
        """A write of about that many bytes failed; what to tell whoever asked for it."""
        with self._lock:
            first = not self._why
            self._why = error.strerror or str(error) or type(error).__name__
            self._since = self._now() if first else self._since
            self._failures += 1
            self._largest = max(self._largest, size)
        if first:  # one line an outage
            _log.error("the disk takes no results: what must be saved is refused until it does", error=self._why)
        return self._refusal(self._why)

    def doubt(self, size: int = 0) -> None:
        """Something failed that may be the disk's fault, or not: the next look tries the disk with that many bytes."""
        with self._lock:
            self._doubted = True
            self._largest = max(self._largest, size)

    def refuse(self) -> None:
        """Refuse what would have to be written, while the disk does not take it.

        Raises:
            NotReady: code `storage_unavailable`.
        """
        if why := self._why:
            raise self._refusal(why)

    def look(self) -> bool:
        """Try the disk, if there is reason to; whether it has just come back."""
        with self._lock:
            failures, size, doubted = self._failures, self._largest, self._doubted
            self._doubted = False
        if not (self._why or doubted or self._is_full()):
            return False
        try:
            # twice: a result is in the spool and where it lasts before it leaves the spool
            self._try(min(_TRIED_WITH_AT_MOST, max(_TRIED_WITH_AT_LEAST, 2 * size)))
        except OSError as error:
            self.failed(error)
            return False
        with self._lock:
            if self._failures != failures:  # one failed while this was tried
                return False
            back, lasted_s = bool(self._why), self._now() - self._since
            self._why, self._largest = "", 0
        if not back:
            return False
        _log.info("the disk takes results again", after_s=round(lasted_s, 1))
        return True

    def _refusal(self, why: str) -> NotReady:
        """To be asked again when it will have lasted twice as long."""
        return NotReady(
            f"results cannot be saved now ({why}); try again later, or send save=false and no Idempotency-Key",
            code="storage_unavailable",
            retry_after_s=min(_LONGEST_RETRY_S, max(1.0, self._now() - self._since)),
        )

    def _is_full(self) -> bool:
        """Whether the file system says so itself: then nobody has to fail first."""
        try:
            return self._room() < _TRIED_WITH_AT_LEAST
        except FileNotFoundError:  # somebody removed the folder: the next write makes it again
            return False
        except OSError:
            return True

    def _room(self) -> float:
        """Bytes that the file system says are free; none where it is read-only, no end where it does not say."""
        facts = os.statvfs(self._directory)
        if facts.f_flag & os.ST_RDONLY:
            return 0.0
        blocks = facts.f_bfree if os.geteuid() == 0 else facts.f_bavail  # some are kept for root
        return float(blocks * facts.f_frsize) if facts.f_blocks else math.inf

    def _try(self, size: int) -> None:
        """Write that many bytes for good, and remove them; not where that would take the last room from others."""
        self._probe.parent.mkdir(parents=True, exist_ok=True)
        if 0 < self._room() < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            self._disk.write(self._probe, bytes(size))
            self._disk.sync_directory(self._probe.parent)
        finally:
            with suppress(OSError):
                self._probe.unlink(missing_ok=True)
