"""Results that were stored before the index existed are entered into it once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.gallery.older_results import index_older_results
from service.saving.index import ResultIndex
from service.saving.storage.disk import ResultFiles

ONE, TWO, THREE = ("1" * 32, "2" * 32, "3" * 32)


def test_older_results_are_entered_once_and_tombstones_stay(tmp_path: Path, index: ResultIndex) -> None:
    files = ResultFiles(tmp_path)
    files.prepare()
    for result_id, owner in ((ONE, {}), (TWO, {"owner": "a"}), (THREE, {})):
        files.write(b"image", {"id": result_id, "media_type": "image/png", **owner})
    (tmp_path / "33" / f"{THREE}.json").write_bytes(b"{")  # damaged
    index.bury(ONE, "")
    assert index_older_results(files, index, tmp_path, threading.Event()) == 2
    assert index.deleted([ONE, TWO, THREE]) == {ONE}
    found = index.find(TWO)
    assert found is not None
    assert (found.owner, found.saved) == ("a", True)
    assert index.find(THREE) is None
    assert index_older_results(files, index, tmp_path, threading.Event()) == 0


def test_a_stopped_run_starts_again(tmp_path: Path, index: ResultIndex) -> None:
    files = ResultFiles(tmp_path)
    files.prepare()
    files.write(b"image", {"id": ONE, "media_type": "image/png"})
    stop = threading.Event()
    stop.set()
    index_older_results(files, index, tmp_path, stop)
    assert index_older_results(files, index, tmp_path, threading.Event()) == 1


def test_a_result_that_cannot_be_read_now_is_entered_by_a_later_start(tmp_path: Path, index: ResultIndex) -> None:
    files = ResultFiles(tmp_path)
    files.prepare()
    for result_id in (ONE, TWO):
        files.write(b"image", {"id": result_id, "media_type": "image/png"})
    sidecar = tmp_path / "11" / f"{ONE}.json"
    content = sidecar.read_bytes()
    sidecar.unlink()
    sidecar.mkdir()  # a folder, which not even root can read as a file
    with pytest.raises(NotReady, match="Is a directory"):
        index_older_results(files, index, tmp_path, threading.Event())
    assert [index.find(one) is not None for one in (ONE, TWO)] == [False, True]
    sidecar.rmdir()
    sidecar.write_bytes(content)
    index_older_results(files, index, tmp_path, threading.Event())
    assert index.find(ONE) is not None
