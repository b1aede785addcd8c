from __future__ import annotations

import json
import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from retouch.command_line import app
from service.auth.keys import key_id_of, read_keys


def keys(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["keys", *map(str, arguments)], env={"COLUMNS": "200", **(env or {})})


def test_a_key_is_shown_once_and_kept_as_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = keys("create", "studio", "--file", path, "--rate", 5, "--burst", 20, "--per-day", 1000)
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    (record,) = read_keys(path)
    assert record.matches(key)
    assert (record.name, record.rate_per_s, record.burst, record.requests_per_day) == ("studio", 5.0, 20, 1000)
    assert record.scopes == {"inference"}
    listed = keys("list", "--file", path)
    assert "studio" in listed.stdout
    assert "5/s, 20 at once; 1000 a day" in listed.stdout
    assert "valid" in listed.stdout
    assert key not in listed.stdout


def test_a_program_gets_the_keys_as_json_without_their_digests(tmp_path: Path) -> None:
    env = {"RETOUCH_KEYS_FILE": str(tmp_path / "k.json")}
    key = keys("create", "one", "--rate", 5, "--scope", "metrics", "--scope", "inference", env=env).stdout.strip()
    (listed,) = json.loads(keys("list", "--json", env=env).stdout)
    created = listed.pop("created_at")
    assert datetime.fromisoformat(created.replace("Z", "+00:00")) <= datetime.now(timezone.utc)
    limits = {"rate_per_s": 5.0, "burst": 10, "requests_per_day": None, "expires_at": None, "revoked_at": None}
    known = {"id": key_id_of(key), "name": "one", "scopes": ["inference", "metrics"], "state": "valid"}
    assert listed == known | limits


@pytest.mark.parametrize("flags", [("--burst", 5), ("--rate", "inf"), ("--rate", "1e400"), ("--rate", "1e-300")])
def test_a_limit_that_limits_nothing_or_allows_nothing_makes_no_key(tmp_path: Path, flags: tuple[object, ...]) -> None:
    made = keys("create", "studio", "--file", tmp_path / "keys.json", *flags)
    assert made.exit_code != 0
    assert made.stdout == ""
    assert not (tmp_path / "keys.json").exists()


@pytest.mark.parametrize("name", ["../x", "a\nb", "", "  ", "a" * 65, "日本語😀"])
def test_a_name_that_no_key_can_have_is_refused_in_words(tmp_path: Path, name: str) -> None:
    made = keys("create", "--file", tmp_path / "keys.json", "--", name)
    assert (made.exit_code, made.stdout) == (2, "")
    assert "name: it is not a key name; use 1 to 64 letters" in made.stderr
    assert not (tmp_path / "keys.json").exists()


@pytest.mark.parametrize("name", ["näme", "日本語", "नमस्ते", "a_b@c.d - 1"])
def test_a_name_may_be_in_any_script(tmp_path: Path, name: str) -> None:
    assert keys("create", name, "--file", tmp_path / "keys.json").exit_code == 0
    assert [record.name for record in read_keys(tmp_path / "keys.json")] == [name]


def test_a_revoked_key_is_listed_as_such(tmp_path: Path) -> None:
    env = {"RETOUCH_KEYS_FILE": str(tmp_path / "k.json")}
    key = keys("create", "one", env=env).stdout.strip()
    keys("create", "two", "--scope", "metrics", "--expires-days", 30, env=env)
    assert keys("revoke", key_id_of(key), env=env).exit_code == 0
    states = {record.name: record.revoked_at is not None for record in read_keys(tmp_path / "k.json")}
    assert states == {"one": True, "two": False}
    listed = keys("list", env=env).stdout
    assert "revoked" in listed
    assert "valid until" in listed


def test_a_change_through_a_link_changes_the_file_behind_it_and_not_the_link(tmp_path: Path) -> None:
    path, link = tmp_path / "etc" / "keys.json", tmp_path / "keys.json"
    path.parent.mkdir()
    link.symlink_to(path)
    key = keys("create", "one", "--file", link).stdout.strip()
    revoked = keys("revoke", key_id_of(key), "--file", link)
    assert (revoked.exit_code, revoked.stderr) == (0, "")
    assert link.is_symlink()
    assert [record.revoked_at is not None for record in read_keys(path)] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_key_file_that_lost_its_owner_gives_a_warning() -> None:
    with tempfile.TemporaryDirectory() as folder:  # other users cannot enter pytest's folders
        path = Path(folder) / "keys.json"
        key = keys("create", "one", "--file", path).stdout.strip()
        os.chown(folder, 12345, 12345)
        path.chmod(0o644)
        os.seteuid(12345)
        try:
            revoked = keys("revoke", key_id_of(key), "--file", path)
        finally:
            os.seteuid(0)
        assert (revoked.exit_code, revoked.stdout) == (0, f"key {key_id_of(key)} is revoked\n")
        assert "a server of another user may not be able to read it" in revoked.stderr


def test_a_key_file_in_the_home_may_be_named_with_a_tilde(tmp_path: Path) -> None:
    made = keys("create", "one", "--file=~/keys.json", env={"HOME": str(tmp_path)})
    assert made.exit_code == 0, made.output
    (record,) = read_keys(tmp_path / "keys.json")
    assert record.matches(made.stdout.strip())


def test_what_cannot_be_done_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert keys("list", "--file", path).exit_code == 1
    refused = keys("create", "x", "--file", path, "--scope", "everything")
    assert refused.exit_code == 2
    assert "scopes" in refused.stderr
    assert not path.exists()
    keys("create", "x", "--file", path)
    before = path.read_bytes()
    assert keys("revoke", "ffffffff", "--file", path).exit_code == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize("days", ["0", "36501", "99999999", "1e12", "inf", "nan", "-1"])
def test_days_after_which_no_key_can_end_are_refused_and_change_nothing(tmp_path: Path, days: str) -> None:
    refused = keys("create", "x", "--file", tmp_path / "keys.json", "--expires-days", days)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--expires-days" in refused.stderr
    assert not (tmp_path / "keys.json").exists()


@pytest.mark.parametrize("parent", ["missing", "a_file"])
def test_a_path_where_no_key_file_can_be_written_gives_one_line_that_says_what_to_do(
    tmp_path: Path, parent: str
) -> None:
    (tmp_path / "a_file").touch()
    for arguments in (("create", "x"), ("revoke", "ffffffff")):
        refused = keys(*arguments, "--file", tmp_path / parent / "keys.json")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "choose another with --file" in refused.stderr
        assert "Traceback" not in refused.stderr
