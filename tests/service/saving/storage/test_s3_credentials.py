from __future__ import annotations

import traceback
from datetime import datetime, timezone
from pathlib import Path

import pytest

from service.core.settings import SettingsInvalid
from service.saving.storage.s3_credentials import shared_credentials

NOON = datetime(2026, 5, 1, 12, tzinfo=timezone.utc)
FILE = """
[default]
aws_access_key_id = one
aws_secret_access_key = %secret%

[other]
aws_access_key_id = two
aws_secret_access_key = hush
aws_session_token = token
"""


def test_the_profile_of_the_environment_is_read_from_the_shared_file_each_time(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(FILE)
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(path)}
    keys = shared_credentials(environ, lambda: NOON)
    assert keys is not None
    assert (keys()["access_key_id"], keys()["secret_access_key"], keys()["token"]) == ("one", "%secret%", None)
    assert keys()["expires_at"] > NOON
    other = shared_credentials({**environ, "AWS_PROFILE": "other"}, lambda: NOON)
    assert other is not None
    assert (other()["access_key_id"], other()["token"]) == ("two", "token")
    path.write_text(FILE.replace("one", "rotated"))
    assert keys()["access_key_id"] == "rotated"


def test_keys_in_the_environment_win_over_a_file_whatever_is_in_it(tmp_path: Path) -> None:
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "gone"), "AWS_ACCESS_KEY_ID": "here"}
    assert shared_credentials(environ, lambda: NOON) is None


def test_the_default_file_may_be_missing_or_lack_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert shared_credentials({}, lambda: NOON) is None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(FILE)
    assert shared_credentials({"AWS_PROFILE": "nobody"}, lambda: NOON) is None
    assert shared_credentials({"AWS_PROFILE": "other"}, lambda: NOON) is not None


@pytest.mark.parametrize(
    ("text", "profile", "message"),
    [
        pytest.param(None, "default", r"credentials cannot be read \(No such file", id="no file"),
        pytest.param(FILE, "nobody", "has no keys of the profile 'nobody'", id="no such profile"),
        pytest.param("[default]\nregion = x\n", "default", "has no keys of the profile 'default'", id="no keys in it"),
    ],
)
def test_a_file_that_was_named_and_has_no_keys_stops_the_start(
    tmp_path: Path, text: str | None, profile: str, message: str
) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "AWS_PROFILE": profile}
    with pytest.raises(SettingsInvalid, match=message):
        shared_credentials(environ, lambda: NOON)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"aws_access_key_id = one\naws_secret_access_key = hush\n", id="no section"),
        pytest.param(b"[default]\nhush\n", id="a line that is none"),
        pytest.param(b"[default]\naws_secret_access_key = hush\xff\n", id="not UTF-8"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_in_it_is_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "credentials"
    path.write_bytes(content)
    with pytest.raises(SettingsInvalid, match=f"{path} is not a credentials file") as refused:
        shared_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(path)}, lambda: NOON)
    assert "hush" not in "".join(traceback.format_exception(refused.value))
