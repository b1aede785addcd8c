"""Processes that share a folder, and the detection of dead ones."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from service.saving.local_disk.disk_state import SPOOL_PROBE
from service.saving.spool.process_folder import SPOOL, SpoolOwner
from tests.fakes.users import ONLY_ROOT, acting_as

HOLD = """
import sys
from pathlib import Path
from service.saving.spool.process_folder import SpoolOwner
SpoolOwner(Path(sys.argv[1]), lambda: sys.argv[2]).create()
print("entered", flush=True)
sys.stdin.read()
"""

STOP_WHILE_MAKING = """
import fcntl, os, sys
from pathlib import Path
from service.saving.spool.process_folder import SpoolOwner

def stopping(call, applies=lambda *_: True):
    def stop(*arguments):
        if applies(*arguments):
            print("making", flush=True)
            sys.stdin.readline()
        return call(*arguments)
    return stop

if sys.argv[3] == "no lock yet":
    os.open = stopping(os.open, lambda path, _: Path(path).name == "lock")
elif sys.argv[3] == "not locked yet":
    fcntl.flock = stopping(fcntl.flock, lambda _, mode: mode == fcntl.LOCK_EX)
else:
    Path.rename = stopping(Path.rename)
SpoolOwner(Path(sys.argv[1]), lambda: sys.argv[2]).create()
print("entered", flush=True)
sys.stdin.read()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def owner(root: Path, name: str) -> SpoolOwner:
    one = SpoolOwner(root, lambda: name)
    one.create()
    return one


def test_an_owner_lives_until_its_process_is_killed(tmp_path: Path) -> None:
    here = owner(tmp_path, "here")
    other = start(HOLD, str(tmp_path), "there")
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


def test_a_probe_file_of_a_process_that_was_killed_does_not_keep_its_folder(tmp_path: Path) -> None:
    here, gone = owner(tmp_path, "here"), owner(tmp_path, "gone")
    (gone.folder / SPOOL_PROBE).write_bytes(b"probe")
    gone.unlock_folder()
    with here.inherit(gone.folder):
        pass
    assert here.folders() == [here.folder]


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


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        SpoolOwner(tmp_path / "file", lambda: "one").create()


def test_a_folder_that_was_made_by_half_is_made_whole_at_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as when the last free inode went to the folder, and none was left for its lock file."""

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


@pytest.mark.parametrize("stage", ["no lock yet", "not locked yet", "no name yet"])
def test_a_folder_that_a_process_was_making_is_swept_when_it_was_killed_and_not_before(
    tmp_path: Path, stage: str
) -> None:
    here = owner(tmp_path, "here")
    killed, living = (start(STOP_WHILE_MAKING, str(tmp_path), name, stage) for name in ("killed", "living"))
    for process in (killed, living):
        assert process.stdout is not None
        assert process.stdout.readline() == b"making\n"
    here.sweep()
    assert {path.name for path in (tmp_path / SPOOL).iterdir()} == {"here", ".killed", ".living"}
    killed.kill()
    killed.communicate()
    here.sweep()
    assert living.stdin is not None
    assert living.stdout is not None
    living.stdin.write(b"\n")
    living.stdin.flush()
    assert living.stdout.readline() == b"entered\n"
    assert here.is_alive("living")
    here.sweep()
    assert {path.name for path in (tmp_path / SPOOL).iterdir()} == {"here", "living"}
    living.kill()
    living.communicate()


def test_a_hidden_folder_with_anything_in_it_is_not_swept(tmp_path: Path) -> None:
    here, hidden = owner(tmp_path, "here"), tmp_path / SPOOL / ".notes"
    hidden.mkdir()
    (hidden / "lock").touch()
    (hidden / "other").touch()
    here.sweep()
    assert len(list(hidden.iterdir())) == 2


def test_a_hidden_link_is_not_swept_nor_what_it_leads_to(tmp_path: Path) -> None:
    here, elsewhere = owner(tmp_path, "here"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (tmp_path / SPOOL / ".link").symlink_to(elsewhere)
    here.sweep()
    assert (tmp_path / SPOOL / ".link" / "lock").exists()


def test_a_child_that_is_forked_during_a_sweep_holds_up_no_maker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, inherited = owner(tmp_path, "here"), list[int]()
    (tmp_path / SPOOL / ".killed").mkdir()
    flock = fcntl.flock

    def fork_then_lock(descriptor: int, mode: int) -> None:
        inherited.append(os.dup(descriptor))  # shares the lock, as a child process does
        flock(descriptor, mode)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", fork_then_lock)
        here.sweep()
    again = os.open(tmp_path / SPOOL, os.O_RDONLY)
    fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)
    for descriptor in (again, *inherited):
        os.close(descriptor)


@ONLY_ROOT
def test_a_process_of_another_user_is_alive_as_only_that_user_can_tell() -> None:
    with tempfile.TemporaryDirectory() as name:  # other users cannot enter pytest's folders
        root = Path(name)
        root.chmod(0o777)
        with acting_as(12345, 12345):
            here = owner(root, "here")
        (root / SPOOL).chmod(0o777)
        other = owner(root, "other")
        for _ in range(2):
            with acting_as(12345, 12345):
                assert here.is_alive("other")
            (other.folder / "left").touch()
            other.unlock_folder()
        assert not here.is_alive("other"), "root can tell"
        here.unlock_folder()
