"""A result for tests of the spool, and access to the segment files."""

from __future__ import annotations

from pathlib import Path

from service.saving.local_disk.disk import Disk
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SPOOL, SpoolOwner

ID, OTHER = f"{1:032x}", f"{2:032x}"


BODY = bytes(range(256)) * 400


SIDECAR = {"id": ID, "media_type": "image/png"}


def spool(root: Path, name: str, disk: Disk | None = None, close_timeout_s: float = 5.0) -> SpoolFiles:
    files = SpoolFiles(SpoolOwner(root, lambda: name), disk, close_timeout_s)
    files.open()
    return files


def segments(root: Path, name: str) -> list[Path]:
    return sorted((root / SPOOL / name).glob("*.log"))
