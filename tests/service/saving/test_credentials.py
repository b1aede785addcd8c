from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from service.saving.credentials import shared_credentials

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


def test_keys_in_the_environment_win_and_a_missing_file_or_profile_is_left_to_the_client(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(path)}
    assert shared_credentials(environ, lambda: NOON) is None
    path.write_text(FILE)
    assert shared_credentials({**environ, "AWS_ACCESS_KEY_ID": "here"}, lambda: NOON) is None
    assert shared_credentials({**environ, "AWS_PROFILE": "nobody"}, lambda: NOON) is None
