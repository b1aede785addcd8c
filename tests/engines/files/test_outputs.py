from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines.files.outputs import check_output


def test_a_file_that_can_be_written_stays_as_it_is_and_a_new_one_gets_its_folder(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("figures")
    check_output(tmp_path / "old.json")
    check_output(tmp_path / "a/b/new.json")
    assert (tmp_path / "old.json").read_text() == "figures"
    assert list((tmp_path / "a/b").iterdir()) == []


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_output(tmp_path / "pipe")


@pytest.mark.parametrize("path", ["folder", "file/new.json"])
def test_what_cannot_be_written_is_an_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"directory|exists"):
        check_output(tmp_path / path)
