"""Unwritable report files are found before the runs, and without changing existing files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from retouch.bench.report_files import check_writable, report_write_errors
from retouch.bench.session import BenchFailed


def test_a_writable_folder_stays_unchanged(tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text("of the last run")
    os.utime(there, (1, 1))
    check_writable(there, tmp_path / "new.png")
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
    assert (there.read_text(), there.stat().st_mtime) == ("of the last run", 1)


def test_a_folder_without_write_permission_is_refused_but_not_a_file_in_it_that_has_it(tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.touch()
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("root writes everywhere")
        check_writable(there, None)
        with pytest.raises(BenchFailed, match=r"new\.json cannot be written \(Permission denied\)"):
            check_writable(tmp_path / "new.json", None)
        there.chmod(0o400)
        with pytest.raises(BenchFailed, match=r"there\.json cannot be written \(Permission denied\)"):
            check_writable(there, None)
    finally:
        tmp_path.chmod(0o700)


def test_a_reader_that_waits_at_a_pipe_is_not_disturbed(tmp_path: Path) -> None:
    pipe, read = tmp_path / "report.json", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    check_writable(pipe, None)
    reader.start()
    check_writable(pipe, None)
    pipe.write_text("the report")
    reader.join(60)
    assert read == ["the report"]


def test_a_disk_that_is_full_by_then_is_an_error_of_the_benchmark() -> None:
    with (
        pytest.raises(BenchFailed, match=r"o\.json cannot be written \(No space left on device\)"),
        report_write_errors(Path("o.json")),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
