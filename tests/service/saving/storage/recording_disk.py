"""A result, and disks that record their calls, and can stop, fail or lose unsynced data."""

from __future__ import annotations

from pathlib import Path

from service.saving.local_disk.disk import Disk
from service.saving.local_disk.syncfs import Changes
from service.saving.storage.disk import ResultFiles

ID = "ab" + "0" * 30
BODY = bytes(range(256)) * 40
SIDECAR = {"id": ID, "media_type": "image/png", "model": "photos/1"}


class PowerCut(BaseException):
    """A power cut: no later code runs, not even handlers of OSError."""


class RecordingDisk(Disk):
    """The real disk; it records its calls, and can stop or fail before a given step."""

    def __init__(self, stop_before: int | None = None, stop: BaseException | None = None) -> None:
        self.steps: list[str] = []
        self._stop_before = stop_before
        self._stop = stop or PowerCut()

    def write(self, path: Path, data: bytes) -> None:
        if len(self.steps) == self._stop_before:
            path.write_bytes(data[: len(data) // 2])
        self._step(f"write {path.parent.name}/{path.name}")
        super().write(path, data)

    def write_soon(self, path: Path | str, data: bytes) -> None:
        path = Path(path)
        if len(self.steps) == self._stop_before:
            path.write_bytes(data[: len(data) // 2])
        self._step(f"write {path.parent.name}/{path.name}, without waiting")
        super().write_soon(path, data)

    def sync_all(self, changes: Changes) -> None:
        self._step("sync all")
        super().sync_all(changes)

    def rename(self, source: Path | str, target: Path | str) -> None:
        self._step(f"rename {Path(target).parent.name}/{Path(target).name}")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._step(f"sync {path.name}")
        super().sync_directory(path)

    def _step(self, step: str) -> None:
        if len(self.steps) == self._stop_before:
            raise self._stop
        self.steps.append(step)


def prepared(directory: Path, disk: Disk | None = None) -> ResultFiles:
    files = ResultFiles(directory, disk)
    files.prepare()
    return files


class ForgetfulDisk(RecordingDisk):
    """A disk that at a power cut keeps every file name and loses all unsynced bytes."""

    def __init__(self, stop_before: int) -> None:
        super().__init__(stop_before)
        self._unsynced: set[Path] = set()

    def write_soon(self, path: Path | str, data: bytes) -> None:
        self._unsynced.add(Path(path))
        super().write_soon(path, data)

    def rename(self, source: Path | str, target: Path | str) -> None:
        super().rename(source, target)
        if Path(source) in self._unsynced:
            self._unsynced = self._unsynced - {Path(source)} | {Path(target)}

    def sync_all(self, changes: Changes) -> None:
        super().sync_all(changes)
        self._unsynced.clear()

    def forget(self) -> None:
        for path in self._unsynced:
            if path.exists():
                path.write_bytes(b"")
