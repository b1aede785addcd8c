"""A dead process's spool is inherited once, completely, and stays readable meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from service.saving.spool import inheritance
from service.saving.spool.process_folder import SPOOL
from service.saving.spool.segment import SpooledResult
from tests.fakes.captured_logs import capture_logs
from tests.service.saving.spool.segments import BODY, ID, OTHER, SIDECAR, segments, spool


def test_what_a_dead_process_left_is_inherited_once_and_stays_readable(tmp_path: Path) -> None:
    dead, heir, late = spool(tmp_path, "dead"), spool(tmp_path, "heir"), spool(tmp_path, "late")
    dead.write(ID, BODY, SIDECAR)
    assert list(heir.inherit()) == [], "it lives"
    dead.close()
    assert late.read(ID) == SpooledResult(BODY, SIDECAR)
    assert list(heir.inherit()) == [(ID, SpooledResult(BODY, SIDECAR))]
    assert list(late.inherit()) == []
    assert late.read(ID) == heir.read(ID) == SpooledResult(BODY, SIDECAR)
    assert not (tmp_path / SPOOL / "dead").exists()


def test_the_folder_of_a_process_that_was_killed_while_it_made_it_goes_too(tmp_path: Path) -> None:
    heir = spool(tmp_path, "heir")
    (tmp_path / SPOOL / ".killed").mkdir()
    (tmp_path / SPOOL / ".killed" / "lock").touch()
    assert list(heir.inherit()) == []
    assert [path.name for path in (tmp_path / SPOOL).iterdir()] == ["heir"]


@pytest.mark.parametrize("length", [1, 10, 60, 5000])
def test_an_incomplete_end_is_not_inherited_but_logged(tmp_path: Path, length: int) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(OTHER, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "dead")
    whole = segment.stat().st_size
    dead.write(ID, BODY, SIDECAR)
    os.truncate(segment, whole + length)
    dead.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in heir.inherit()] == [OTHER]
    assert [line["bytes"] for line in lines] == [length]
    assert heir.read(ID) is None


def test_what_was_inherited_is_kept_as_ones_own_is(tmp_path: Path) -> None:
    dead, heir, next_heir = spool(tmp_path, "dead"), spool(tmp_path, "heir"), spool(tmp_path, "next")
    for number in range(3):
        dead.write(f"{number:032x}", BODY, SIDECAR)
    dead.close()
    assert len(list(heir.inherit())) == 3
    heir.remove(f"{0:032x}")
    heir.sync(f"{1:032x}")
    heir.close()
    assert [result_id for result_id, _ in next_heir.inherit()] == [f"{1:032x}", f"{2:032x}"]
    for number in (1, 2):
        next_heir.remove(f"{number:032x}")
    assert segments(tmp_path, "next") == []


def test_results_that_cannot_be_read_when_inherited_are_returned_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.write(OTHER, BODY, SIDECAR)
    dead.close()
    pread, left = os.pread, [2]

    def failing(descriptor: int, length: int, at: int) -> bytes:
        if length == len(BODY):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, length, at)

    monkeypatch.setattr(os, "pread", failing)
    inherited = []
    with pytest.raises(OSError, match="Input/output"):
        inherited += [result_id for result_id, _ in heir.inherit()]
    assert heir.ids() == {ID, OTHER}
    assert [result_id for result_id, _ in heir.inherit()] == [OTHER]


def test_a_result_that_is_inherited_during_a_search_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader lists the heir's folder before the result moves there, and the dead process's after."""
    dead, heir, reader = spool(tmp_path, "dead"), spool(tmp_path, "a-heir"), spool(tmp_path, "z-reader")
    dead.write(ID, BODY, SIDECAR)
    looked_at: list[Path] = []
    scandir = os.scandir

    def look_and_move(folder: Path) -> Any:
        listed = scandir(folder)
        if Path(folder).name == "a-heir" and not looked_at:
            looked_at.append(folder)
            dead.close()
            assert len(list(heir.inherit())) == 1
        return listed

    monkeypatch.setattr(os, "scandir", look_and_move)
    assert reader.read(ID) == SpooledResult(BODY, SIDECAR)
    assert looked_at


def test_a_segment_that_cannot_be_read_stays_with_the_dead_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heir = spool(tmp_path, "heir")
    for number, name in enumerate(("d0", "d1", "d2")):
        dead = spool(tmp_path, name)
        dead.write(f"{number:032x}", BODY, SIDECAR)
        dead.close()
    scan = inheritance.scan  # type: ignore[attr-defined]

    def failing(descriptor: int) -> Any:
        found = scan(descriptor)
        if found[0][0].line.id == f"{1:032x}":
            raise OSError(errno.EIO, "Input/output error")
        return found

    told: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(inheritance, "scan", failing)
        with pytest.raises(OSError, match="Input/output"):
            told.extend(result_id for result_id, _ in heir.inherit())
    assert told == [f"{0:032x}", f"{2:032x}"]
    assert list(heir.inherit()) == [(f"{1:032x}", SpooledResult(BODY, SIDECAR))]


def test_a_folder_that_may_not_be_opened_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the folder of a process that ran as another user."""
    heir = spool(tmp_path, "heir")
    for number, name in enumerate(("d0", "d1", "d2")):
        dead = spool(tmp_path, name)
        dead.write(f"{number:032x}", BODY, SIDECAR)
        dead.close()
    opened = os.open

    def forbidding(path: Any, *how: int) -> int:
        if Path(path) == tmp_path / SPOOL / "d1" / "lock":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *how)

    monkeypatch.setattr(os, "open", forbidding)
    told: list[str] = []
    with pytest.raises(PermissionError):
        told.extend(result_id for result_id, _ in heir.inherit())
    assert told == [f"{0:032x}", f"{2:032x}"]


@pytest.mark.parametrize("lives", [False, True])
def test_a_folder_without_a_lock_is_inherited(tmp_path: Path, lives: bool) -> None:
    """A cleaner may remove the empty lock file, or a backup omit it. A living owner creates the folder again."""
    other, heir = spool(tmp_path, "other"), spool(tmp_path, "heir")
    other.write(ID, BODY, SIDECAR)
    if not lives:
        other.close()
    (tmp_path / SPOOL / "other" / "lock").unlink()
    assert list(heir.inherit()) == [(ID, SpooledResult(BODY, SIDECAR))]
    assert not (tmp_path / SPOOL / "other").exists()
    if lives:
        other.write(OTHER, BODY, SIDECAR)
        assert other.read(ID) == heir.read(OTHER) == SpooledResult(BODY, SIDECAR)
        assert list(heir.inherit()) == [], "it is locked again"


@pytest.mark.parametrize("torn", [None, 0, 1])
def test_a_result_that_a_dead_process_spooled_twice_is_inherited_once(tmp_path: Path, torn: int | None) -> None:
    """A process may die after it spools a result again and before it marks the first copy as removed."""
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    (first,) = segments(tmp_path, "dead")
    data = first.read_bytes()
    first.rename(tmp_path / "first")
    dead.write(ID, BODY, SIDECAR)
    (tmp_path / "first").unlink()
    first.write_bytes(data + data)
    dead.close()
    if torn is not None:
        segments(tmp_path, "dead")[torn].write_bytes(data[:-1] + b"?")
    assert list(heir.inherit()) == [(ID, SpooledResult(BODY, SIDECAR))]
    heir.remove(ID)
    assert segments(tmp_path, "heir") == []
    assert list(heir.inherit()) == []


def test_what_was_spooled_here_too_is_not_inherited_again(tmp_path: Path) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.close()
    heir.write(ID, BODY, SIDECAR)
    assert list(heir.inherit()) == []
    assert heir.read(ID) == SpooledResult(BODY, SIDECAR)
    assert len(segments(tmp_path, "heir")) == 1, "the copy is gone"


def test_a_result_is_found_while_its_segment_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.close()
    rename, found = Path.rename, []

    def read_round_it(path: Path, target: Path) -> Path:
        found.append(heir.read(ID))
        moved = rename(path, target)
        found.append(heir.read(ID))
        return moved

    monkeypatch.setattr(Path, "rename", read_round_it)
    assert len(list(heir.inherit())) == 1
    assert found == [SpooledResult(BODY, SIDECAR)] * 2


def test_a_segment_that_cannot_be_moved_stays_with_the_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.close()

    def full(*_: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="No space left"):
            list(heir.inherit())
    assert heir.read(ID) == SpooledResult(BODY, SIDECAR)
    assert len(list(heir.inherit())) == 1
