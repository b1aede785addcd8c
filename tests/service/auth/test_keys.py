"""API keys: which of their parts are stored, and the file that they are stored in."""

from __future__ import annotations

import os
import resource
import stat
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from service.auth.keys import KeysInvalid, key_id_of, lock_key_file, new_key, read_keys, with_key_revoked, write_keys
from tests.serving.key_files import CREATED, add_key, record_of


def test_a_key_has_256_random_bits_and_names_its_id() -> None:
    made = [new_key() for _ in range(100)]
    assert len({key for _, key in made}) == 100
    for key_id, key in made:
        assert key_id_of(key) == key_id
        assert len(key.split("_", 2)[2]) == 43  # 32 bytes in base64url


@pytest.mark.parametrize(
    "text", ["", "rtk_", "rtk_12345678_short", "RTK_12345678_" + "a" * 43, "rtk_1234567é_" + "a" * 43]
)
def test_malformed_keys_have_no_id(text: str) -> None:
    assert key_id_of(text) is None


def test_the_file_holds_no_key_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key = add_key(path)
    secret = key.split("_", 2)[2]
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.matches(key) for found in read_keys(path)] == [True]
    assert list(tmp_path.iterdir()) == [path]


def test_a_change_through_a_symlink_changes_its_target(tmp_path: Path) -> None:
    path, link = tmp_path / "etc" / "keys.json", tmp_path / "keys.json"
    path.parent.mkdir()
    link.symlink_to(path)
    key = add_key(path)
    with lock_key_file(link) as real_path:
        write_keys(real_path, with_key_revoked(read_keys(real_path), key_id_of(key) or "", CREATED))
    assert link.is_symlink()
    assert [found.revoked_at for found in read_keys(path)] == [CREATED]


def test_a_symlink_that_replaces_the_key_file_before_a_write_is_refused(tmp_path: Path) -> None:
    """The server's user may own the folder, and could redirect the write of root, who revokes a key."""
    path, other = tmp_path / "keys.json", tmp_path / "other.json"
    add_key(path)
    add_key(other)
    before = other.read_bytes()
    with lock_key_file(path) as locked:
        keys = read_keys(locked)
        path.rename(tmp_path / "moved.json")
        path.symlink_to(other)
        with pytest.raises(KeysInvalid, match="not a regular file"):
            write_keys(locked, keys)
    assert (other.read_bytes(), path.is_symlink()) == (before, True)
    assert not list(tmp_path.glob(".*.tmp"))


def test_another_key_with_the_same_id_does_not_match() -> None:
    key_id, key = new_key()
    record = record_of(key, key_id)
    assert record.matches(key)
    assert not record.matches(key[:-1] + ("A" if key[-1] != "A" else "B"))
    assert not record.matches("")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"", "Invalid JSON", id="empty"),
        pytest.param(b"[]", "should be an object", id="not an object"),
        pytest.param(b'{"version": 2}', "version", id="of a later version"),
        pytest.param(b'{"kees": []}', "kees", id="misspelt"),
        pytest.param(b'{"keys": [{"id": "secret-in-the-wrong-place"}]}', "keys.0.id", id="a bad record"),
    ],
)
def test_invalid_key_files_are_refused_without_being_quoted(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content)
    with pytest.raises(KeysInvalid, match=says) as refused:
        read_keys(path)
    assert "secret-in" not in str(refused.value)


def test_a_missing_key_file_is_an_error_that_says_how_to_create_it(tmp_path: Path) -> None:
    with pytest.raises(KeysInvalid, match="retouch keys create"):
        read_keys(tmp_path / "none.json")


def test_a_pipe_as_key_file_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json")
    with pytest.raises(KeysInvalid, match="not a regular file"):
        read_keys(tmp_path / "keys.json")


def test_an_older_file_with_a_name_of_spaces_alone_stays_valid(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    add_key(path, name="  ")
    assert [record.name for record in read_keys(path)] == ["  "]


def test_a_missing_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "none" / "keys.json"
    with (
        pytest.raises(KeysInvalid, match=rf"make the folder {path.parent}, or choose another with --file"),
        lock_key_file(path),
    ):
        raise AssertionError("no process writes to the pipe")


def test_a_failed_write_leaves_the_old_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    add_key(path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(KeysInvalid, match=f"cannot be written: File too large; let this user write in {tmp_path}"):
            write_keys(path, ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    record = record_of("a", "0" * 8)
    write_keys(tmp_path / "keys.json", [record, record])
    with pytest.raises(KeysInvalid, match="twice"):
        read_keys(tmp_path / "keys.json")


def test_revoking_twice_keeps_the_first_time_and_other_keys() -> None:
    keys = (record_of("a", "0" * 8), record_of("b", "1" * 8))
    first = with_key_revoked(keys, "0" * 8, CREATED)
    again = with_key_revoked(first, "0" * 8, datetime.now(timezone.utc) + timedelta(days=1))
    assert again == first
    assert [key.revoked_at for key in first] == [CREATED, None]
    with pytest.raises(KeysInvalid, match="no key has the id"):
        with_key_revoked(keys, "2" * 8, CREATED)


def test_of_two_changes_at_once_the_second_waits_and_undoes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_keys(path, [record_of("a", "0" * 8), record_of("b", "1" * 8)])

    def revoke(key_id: str) -> None:
        with lock_key_file(path) as locked:
            write_keys(locked, with_key_revoked(read_keys(locked), key_id, CREATED))

    with ThreadPoolExecutor(1) as another:
        with lock_key_file(path) as locked:
            before = read_keys(locked)
            second = another.submit(revoke, "1" * 8)
            wait([second], 0.3)
            assert not second.done()
            write_keys(locked, with_key_revoked(before, "0" * 8, CREATED))
        second.result()
    assert all(key.revoked_at for key in read_keys(path))
