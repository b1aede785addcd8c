from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from service.saving.local_disk.syncfs import (
    Changes,
    changes_of,
    file_system_type,
    syncfs_is_reliable,
    syncfs_reports_errors,
)


def test_what_was_written_is_synced(tmp_path: Path) -> None:
    with changes_of(tmp_path) as changes:
        (tmp_path / "file").write_bytes(b"bytes")
        changes.sync()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(changes.descriptor)


def test_a_sync_that_fails_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        Changes(-1).sync()


@pytest.mark.parametrize(
    ("system", "release", "tells"),
    [
        ("Linux", "6.1.0-18-amd64", True),
        ("Linux", "5.8.0", True),
        ("Linux", "5.10.0-28-cloud", True),
        ("Linux", "5.4.0-200-generic", False),
        ("Linux", "4.19.0", False),
        ("Linux", "unknown", False),
        ("Darwin", "24.1.0", False),
    ],
)
def test_only_a_system_that_tells_of_failed_writes_is_trusted(system: str, release: str, tells: bool) -> None:
    assert syncfs_reports_errors(system, release) is tells


@pytest.mark.skipif(sys.platform != "linux", reason="statfs(2) of Linux")
def test_the_kind_of_a_file_system_is_known() -> None:
    assert file_system_type(Path("/proc")) == 0x9FA0
    assert file_system_type(Path("/no/such/folder")) == 0


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        pytest.param(0xEF53, True, id="ext4"),
        pytest.param(0x9123683E, True, id="Btrfs"),
        pytest.param(0x65735546, False, id="FUSE"),
        pytest.param(0x01021997, False, id="9p"),
        pytest.param(0x6969, False, id="NFS"),
        pytest.param(0, False, id="unknown"),
    ],
)
def test_only_file_systems_that_sync_all_of_a_file_are_synced_whole(kind: int, whole: bool) -> None:
    assert syncfs_is_reliable(kind) is whole
