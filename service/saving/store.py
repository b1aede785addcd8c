"""Write-behind store of results: a reply never waits for the disk, and an accepted result is never dropped.

Room is reserved at admission (`reserve`), so that a full spool refuses new work before anything is computed. A finished
result is handed over (`put`) and written by threads (service/saving/result_files.py); until it is on disk it is read
from memory. A failing disk delays a result, with growing pauses between the tries, and never loses it while the process
lives.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

import structlog

from service.errors import ShuttingDown
from service.ranges import stage_range
from service.saving.result_files import SUFFIXES, ResultFiles, is_result_id
from service.saving.spool import Backoff, Spool, SpoolLimits

_log = structlog.get_logger(__name__)


class SaveObserver(Protocol):
    """Told about every save, from the writer threads; must not block."""

    def saved(self, lag_s: float) -> None:
        """A result became durable `lag_s` seconds after `put`."""

    def save_failed(self) -> None:
        """One try failed; the result is kept and tried again."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from."""

    now: Callable[[], float] = time.monotonic
    """Seconds, for lags and rates."""
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(timezone.utc))
    """For the sidecar's `created`."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A finished reply.

    id: 32 hexadecimal digits (uuid4().hex).
    sidecar: JSON values; the store adds id, created, media_type, bytes and sha256.
    """

    id: str
    body: bytes
    media_type: str
    sidecar: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Waiting:
    result: StoredResult
    record: str
    """The sidecar as JSON, taken at `put`: what the caller changes later is not saved."""
    since: float

    def sidecar(self) -> dict[str, Any]:
        sidecar: dict[str, Any] = json.loads(self.record)
        return {**sidecar, "sha256": hashlib.sha256(self.result.body).hexdigest()}


class Reservation:
    """Room promised in the spool; `put` uses it, `release` or leaving its `with` block gives an unused one back."""

    def __init__(self, estimate: int, release: Callable[[Reservation], None]) -> None:
        self.estimate = estimate
        self.open = True
        """Neither used nor given back; changed under the store's lock only."""
        self._release = release

    def release(self) -> None:
        """Give the room back; does nothing when it was used or given back already."""
        self._release(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class ResultStore:
    """Accepts results at once and makes them durable soon. Thread-safe; `get` and `sidecar` may block on the disk."""

    def __init__(
        self,
        files: ResultFiles,
        limits: SpoolLimits,
        *,
        threads: int = 2,
        observer: SaveObserver | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._files = files
        self._observer = observer
        self._clock = clock or Clock()
        self._backoff = backoff or Backoff()
        self._changed = threading.Condition()  # guards all below
        self._spool = Spool(limits)
        self._waiting: dict[str, _Waiting] = {}  # in order of arrival, until durable
        self._queue: deque[str] = deque()  # those of them that no thread is writing
        self._failures_in_a_row = 0
        self._flushing = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._save_until_closed, name=f"save-{n}", daemon=True) for n in range(threads)
        ]

    def start(self) -> ResultStore:
        """Prepare the directory and start the writers.

        Raises:
            SettingsInvalid: the directory cannot be made or written to.
        """
        self._files.prepare()
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> ResultStore:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def reserve(self, bytes_estimate: int) -> Reservation:
        """Promise room for one result; call it at admission, before any work.

        Raises:
            Overloaded: code `spool_full`, with `retry_after_s` from how fast results were saved lately.
            ShuttingDown: the store is closed.
        """
        with self._changed:
            if self._closed:
                raise ShuttingDown("results are no longer saved here; ask another replica")
            self._spool.reserve(bytes_estimate, self._clock.now())
        return Reservation(bytes_estimate, self._release)

    def put(self, reservation: Reservation, result: StoredResult) -> None:
        """Accept a finished result; returns at once, the writers make it durable.

        Raises:
            ValueError, TypeError: a bad id or media type, a used reservation, a sidecar that is not JSON: a bug of
                the caller. Nothing was accepted and the reservation stays open.
            ShuttingDown: the store is closed.
        """
        if not is_result_id(result.id) or result.media_type not in SUFFIXES:
            raise ValueError(f"cannot store {result.id!r} of type {result.media_type!r}")
        size = len(result.body)
        created = self._clock.wall().isoformat(timespec="milliseconds")
        facts = {"id": result.id, "created": created, "media_type": result.media_type, "bytes": size}
        record = json.dumps({**result.sidecar, **facts})
        with self._changed:
            if self._closed:
                raise ShuttingDown("results are no longer saved here; ask another replica")
            if not reservation.open or result.id in self._waiting:
                raise ValueError(f"the reservation for result {result.id} is used up or the id is not new")
            reservation.open = False
            self._spool.fill(reservation.estimate, size)
            self._waiting[result.id] = _Waiting(result, record, self._clock.now())
            self._queue.append(result.id)
            self._changed.notify()

    def get(self, result_id: str) -> tuple[bytes, str] | None:
        """The image and its media type, durable or not yet; None where there is no such result.

        Raises:
            ServiceError: it is on disk and cannot be read.
        """
        if not is_result_id(result_id):
            return None
        waiting = self._waiting_for(result_id)
        return (waiting.result.body, waiting.result.media_type) if waiting else self._files.read(result_id)

    def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """What is known of a result, durable or not yet; None where there is no such result.

        Raises:
            ServiceError: it is on disk and cannot be read.
        """
        if not is_result_id(result_id):
            return None
        waiting = self._waiting_for(result_id)
        return waiting.sidecar() if waiting else self._files.read_sidecar(result_id)

    @property
    def pending(self) -> int:
        """Accepted results that are not durable yet."""
        with self._changed:
            return self._spool.waiting_items

    @property
    def pending_bytes(self) -> int:
        """Their bytes."""
        with self._changed:
            return self._spool.waiting_bytes

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the oldest of them was accepted; 0 when there is none."""
        with self._changed:
            oldest = next(iter(self._waiting.values()), None)
            return self._clock.now() - oldest.since if oldest else 0.0

    def flush(self, timeout_s: float) -> int:
        """Wait until every accepted result is durable; a failing disk is tried again at once, and with short pauses.

        Returns:
            How many results are left: 0, unless the time ran out.
        """
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting, timeout_s)
            self._flushing -= 1
            return len(self._waiting)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the writers after the file they are at; `flush` first. Calling it twice is allowed.

        A writer that hangs in the disk longer than `timeout_s` is left behind: it does not keep the process alive.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout_s)

    def _release(self, reservation: Reservation) -> None:
        with self._changed:
            if reservation.open:
                reservation.open = False
                self._spool.release(reservation.estimate)

    def _waiting_for(self, result_id: str) -> _Waiting | None:
        with self._changed:
            return self._waiting.get(result_id)

    def _save_until_closed(self) -> None:
        while (waiting := self._next()) is not None:
            self._save(waiting)

    def _save(self, waiting: _Waiting) -> None:
        try:
            with stage_range("save", waiting.result.id):
                self._files.write(waiting.result.body, waiting.sidecar())
        except Exception as error:  # whatever it is, the writer lives on and the result is kept
            self._keep(waiting, error)
        else:
            self._forget(waiting)

    def _next(self) -> _Waiting | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._queue)
            return None if self._closed else self._waiting[self._queue.popleft()]

    def _forget(self, waiting: _Waiting) -> None:
        with self._changed:
            now = self._clock.now()
            del self._waiting[waiting.result.id]
            self._spool.drain(len(waiting.result.body), now)
            failures, self._failures_in_a_row = self._failures_in_a_row, 0
            self._changed.notify_all()
        if failures:
            _log.info("saving works again", failures=failures)
        if self._observer:
            self._observer.saved(now - waiting.since)

    def _keep(self, waiting: _Waiting, error: Exception) -> None:
        with self._changed:
            self._failures_in_a_row += 1
            failures = self._failures_in_a_row
            pending = len(self._waiting)
        if self._observer:
            self._observer.save_failed()
        if failures == 1:  # one line per streak: a full disk fails thousands of times
            _log.error("saving failed; results are kept in memory and tried again", error=str(error), pending=pending)
        with self._changed:
            self._queue.append(waiting.result.id)
            if self._flushing:
                self._changed.wait_for(lambda: self._closed, self._backoff.first_s)
            else:
                self._changed.wait_for(lambda: self._closed or self._flushing, self._backoff.pause_s(failures))
