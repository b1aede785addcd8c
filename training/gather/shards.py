"""Writes JPEG files into tar files of limited size; the same pictures give the same bytes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import TracebackType

_BLOCK = 512
_END = 20 * _BLOCK
"""Bytes at the end of a tar file, which is padded to a record of twenty blocks."""


class ShardWriter:
    """Writes `NAME-000.tar`, `NAME-001.tar`, … into a directory; a context manager."""

    def __init__(self, directory: Path, name: str, max_bytes: int) -> None:
        self._directory = directory
        self._name = name
        self._max_bytes = max_bytes
        self._tar: tarfile.TarFile | None = None
        self._size = 0
        self.paths: list[Path] = []

    def __enter__(self) -> ShardWriter:
        self._directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tar:
            self._tar.close()

    def add(self, name: str, data: bytes) -> None:
        """Append a file; starts the next shard if this one would exceed its size."""
        size = _BLOCK + -(-len(data) // _BLOCK) * _BLOCK
        tar = self._tar
        if tar is None or self._size + size + _END > self._max_bytes:
            tar = self._open_next_shard()
        info = tarfile.TarInfo(name)  # owner and time are 0, so that another run writes the same bytes
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        self._size += size

    def _open_next_shard(self) -> tarfile.TarFile:
        if self._tar:
            self._tar.close()
        path = self._directory / f"{self._name}-{len(self.paths):03}.tar"
        self.paths.append(path)
        self._tar = tarfile.open(path, "w")  # noqa: SIM115 -- closed by the next shard or the context
        self._size = 0
        return self._tar
