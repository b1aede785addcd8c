"""A store on a storage that a test can hold up, and an observer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from service.saving.results import StoredResult
from service.saving.spool.capacity import Backoff, SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore

ROOMY = SpoolLimits(max_items=1000, max_bytes=2**30)


QUICK = Backoff(first_s=0.001, longest_s=0.002)


def open_store(storage: ResultFiles, limits: SpoolLimits = ROOMY, **options: Any) -> ResultStore:
    """Return a store with its spool in the same folder, as in the server."""
    spool_files = SpoolFiles(SpoolOwner(files_directory(storage), lambda: uuid4().hex))
    return ResultStore(storage, spool_files, limits, **options)


class SlowFiles(ResultFiles):
    """The real results folder behind a gate that a test opens; counts the attempts."""

    def __init__(self, directory: Path, max_group_size: int = 1) -> None:
        super().__init__(directory, max_group_size=max_group_size)
        self.most = max_group_size
        self.groups: list[int] = []
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.tries = 0

    @property
    def max_group_size(self) -> int:
        return self.most  # not that of the tests' file system

    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        self.tries += 1
        assert self.gate.wait(30)
        if self.error:
            raise self.error
        super().write(body, sidecar)

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        self.groups.append(len(results))
        if len(results) > 1:
            assert self.gate.wait(30)
            if self.error:
                raise self.error
        super().write_all(results)


class Elsewhere(SlowFiles):
    """Storage that is not on the spool's disk."""

    @property
    def shares_spool_disk(self) -> bool:
        return False


class Counts:
    """A SaveObserver that records its calls."""

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self.failures = 0

    def saved(self, lag_s: float) -> None:
        self.lags_s.append(lag_s)

    def save_failed(self) -> None:
        self.failures += 1


class AnHour(Backoff):
    """A backoff of an hour, except during a flush."""

    def pause_s(self, failures: int) -> float:
        return 3600.0


def result(number: int, body: bytes = b"image", media_type: str = "image/png") -> StoredResult:
    return StoredResult(f"{number:032x}", body, media_type, {"model": "photos/1", "timings": {"infer": 0.01}})


def put(store: ResultStore, *results: StoredResult) -> None:
    for one in results:
        store.put(store.reserve(len(one.body)), one)


def files_directory(files: ResultFiles) -> Path:
    return files._directory
