"""The keys of the standard shared credentials file, for a client that reads the environment only.

`AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`; the section `AWS_PROFILE`, else `default`. Read again every
few minutes, so that rotated keys are taken up. Never logged.
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict

_READ_AGAIN_AFTER = timedelta(minutes=10)


class Credentials(TypedDict):
    """As the storage client takes them."""

    access_key_id: str
    secret_access_key: str
    token: str | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SharedCredentials:
    """Called by the client when it needs keys, from threads of its own."""

    path: Path
    profile: str
    now: Callable[[], datetime]

    def __call__(self) -> Credentials:
        """The keys of now.

        Raises:
            OSError, KeyError: the file is gone or has no such profile any more.
        """
        section = _read(self.path)[self.profile]
        return Credentials(
            access_key_id=section["aws_access_key_id"],
            secret_access_key=section["aws_secret_access_key"],
            token=section.get("aws_session_token"),
            expires_at=self.now() + _READ_AGAIN_AFTER,
        )


def shared_credentials(environ: Mapping[str, str], now: Callable[[], datetime]) -> SharedCredentials | None:
    """The file's keys, or None where the environment has keys of its own or the file has none for the profile."""
    if "AWS_ACCESS_KEY_ID" in environ:
        return None
    path = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")
    profile = environ.get("AWS_PROFILE", "default")
    try:
        found = profile in _read(path)
    except OSError:
        return None
    return SharedCredentials(path, profile, now) if found else None


def _read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(path.read_text("utf-8"), source="the credentials file")
    return parser
