"""Atomic replacement: a file has its whole new content or its old one, never a part."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from pathlib import Path
from typing import cast

import pytest

from engines.files.atomic import replace_file, write_atomically
from tests.fakes.users import ONLY_ROOT, acting_as


def test_content_takes_the_place_of_what_was_there_in_a_folder_that_is_made(tmp_path):
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "new" / "file", content)
    assert (tmp_path / "new" / "file").read_bytes() == b"second"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_what_was_there_stays_when_the_disk_is_full(tmp_path, request):
    write_atomically(tmp_path / "file", b"first")
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "file", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"first")]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_whoever_could_read_the_file_still_can(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    replace_file(path, b"first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(mode)
    assert replace_file(path, b"second")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"second", mode)


def test_an_access_control_list_is_kept(tmp_path: Path) -> None:
    """The mode's group bits show the ACL's mask, although the group itself may not read the file."""
    path = tmp_path / "file"
    replace_file(path, b"first")
    everyone = 0xFFFFFFFF
    entries = [(1, 6, everyone), (2, 4, 12345), (4, 0, everyone), (16, 4, everyone), (32, 0, everyone)]
    access_list = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", access_list)
    except OSError:
        pytest.skip("this file system has no access control lists")
    assert replace_file(path, b"second")
    assert os.getxattr(path, "system.posix_acl_access") == access_list


def test_a_link_to_a_cache_file_stays_one_and_no_damaged_file_stays(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"damaged")
    path.symlink_to(other)
    write_atomically(path, b"whole")
    assert (other.read_bytes(), path.is_symlink()) == (b"whole", True)


def test_whatever_ends_the_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    """The error, like Ctrl-C, does not come from the file system."""
    with pytest.raises(TypeError):
        replace_file(tmp_path / "file", cast("bytes", "text"))
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    """The folder in which root replaces a file may belong to another user, who could redirect the write."""
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"of another")
    path.symlink_to(other)
    with pytest.raises(OSError, match="not a regular file"):
        replace_file(path, b"second")
    assert (other.read_bytes(), path.is_symlink()) == (b"of another", True)
    assert sorted(tmp_path.iterdir()) == [path, other]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_server_of_another_user_can_read_what_root_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"first")
    os.chown(path, 12345, 23456)
    assert replace_file(path, b"second")
    assert (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (12345, 23456, 0o600)


@ONLY_ROOT
@pytest.mark.parametrize(("groups", "group", "mode"), [([23456], 23456, 0o640), ([], 34567, 0o600)])
def test_who_may_not_give_a_file_away_keeps_its_group_or_shuts_the_other_group_out(
    groups: list[int], group: int, mode: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # other users cannot enter pytest's folders
        path = Path(folder) / "file"
        replace_file(path, b"first")
        path.chmod(0o640)
        os.chown(path, 0, 23456)
        os.chown(folder, 12345, 34567)
        with acting_as(12345, 34567, groups):
            kept = replace_file(path, b"second")
        found = path.stat()
        assert (kept, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (False, 12345, group, mode)
