"""Who shares a folder, and who of them is dead."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.saving.spool.process_folder import SPOOL, SpoolOwner

HOLD = """
import sys
from pathlib import Path
from service.saving.spool.process_folder import SpoolOwner
SpoolOwner(Path(sys.argv[1]), lambda: sys.argv[2]).create()
print("entered", flush=True)
sys.stdin.read()
"""


def owner(root: Path, name: str) -> SpoolOwner:
    one = SpoolOwner(root, lambda: name)
    one.create()
    return one


def test_an_owner_lives_until_its_process_is_killed(tmp_path: Path) -> None:
    here = owner(tmp_path, "here")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "there"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"entered\n"
    assert here.is_alive("there")
    with here.inherit(tmp_path / SPOOL / "there") as dead:
        assert not dead
    other.kill()
    other.communicate()
    assert not here.is_alive("there")
    (tmp_path / SPOOL / "there" / "left").write_bytes(b"")
    with here.inherit(tmp_path / SPOOL / "there") as dead:
        assert dead
    assert here.is_alive("here")
    assert not here.is_alive("never there")


def test_a_dead_owners_folder_goes_when_it_has_been_emptied_and_not_before(tmp_path: Path) -> None:
    here, gone = owner(tmp_path, "here"), owner(tmp_path, "gone")
    (gone.folder / "left").write_bytes(b"")
    gone.unlock_folder()
    gone.unlock_folder()
    assert here.folders() == [here.folder, gone.folder]
    with here.inherit(gone.folder):
        pass
    assert gone.folder.exists()
    with here.inherit(gone.folder) as dead:
        assert dead
        (gone.folder / "left").unlink()
    assert here.folders() == [here.folder]
    with here.inherit(gone.folder) as dead:
        assert not dead, "somebody else was quicker"


def test_only_one_inherits_at_a_time(tmp_path: Path) -> None:
    first, second, gone = owner(tmp_path, "first"), owner(tmp_path, "second"), owner(tmp_path, "gone")
    (gone.folder / "left").write_bytes(b"")
    gone.unlock_folder()
    with first.inherit(gone.folder) as dead:
        assert dead
        with second.inherit(gone.folder) as dead_too:
            assert not dead_too


def test_an_owner_that_leaves_nothing_leaves_no_folder(tmp_path: Path) -> None:
    one = owner(tmp_path, "one")
    one.unlock_folder()
    assert list((tmp_path / SPOOL).iterdir()) == []


@pytest.mark.parametrize("copied", [False, True])
def test_an_owner_whose_folder_was_moved_is_alive_again_where_the_others_look(tmp_path: Path, copied: bool) -> None:
    results = tmp_path / "results"
    here, other = owner(results, "here"), owner(results, "other")
    results.rename(tmp_path / "archive")
    if copied:
        shutil.copytree(tmp_path / "archive", results)
    assert not other.is_alive("here")
    here.recreate()
    assert other.is_alive("here")
    here.recreate()
    assert other.is_alive("here")
    here.unlock_folder()
    assert not other.is_alive("here")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        SpoolOwner(tmp_path / "file", lambda: "one").create()


def test_a_folder_that_was_made_by_half_is_made_whole_at_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the last free inode went to the folder, and none was left for the file that is locked."""

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    one, other = SpoolOwner(tmp_path, lambda: "one"), owner(tmp_path, "other")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(OSError, match="No space left"):
            one.create()
    one.create()
    assert other.is_alive("one")


def test_what_is_no_folder_is_no_process(tmp_path: Path) -> None:
    one = owner(tmp_path, "one")
    (tmp_path / SPOOL / "notes.txt").write_bytes(b"")
    assert one.folders() == [one.folder]
