"""Keys from the AWS shared credentials file, because the S3 client reads only the environment.

The file is `AWS_SHARED_CREDENTIALS_FILE` or `~/.aws/credentials`, the section `AWS_PROFILE` or `default`. It is read
again every 10 minutes, in case keys are rotated. Keys are never logged.
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict

from engines.files.regular import read_regular
from service.core.settings import SettingsInvalid

_MAX_BYTES = 2**20
_REFRESH_INTERVAL = timedelta(minutes=10)


class Credentials(TypedDict):
    """Keys in the format of the S3 client."""

    access_key_id: str
    secret_access_key: str
    token: str | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SharedCredentials:
    """Provider of keys that the S3 client calls, on its own threads."""

    path: Path
    profile: str
    now: Callable[[], datetime]

    def __call__(self) -> Credentials:
        """Read the keys.

        Raises:
            OSError: the file cannot be read.
            KeyError: it lacks the profile or its keys.
            SettingsInvalid: it is damaged.
        """
        section = _read(self.path)[self.profile]
        return Credentials(
            access_key_id=section["aws_access_key_id"],
            secret_access_key=section["aws_secret_access_key"],
            token=section.get("aws_session_token"),
            expires_at=self.now() + _REFRESH_INTERVAL,
        )


def shared_credentials(environ: Mapping[str, str], now: Callable[[], datetime]) -> SharedCredentials | None:
    """Return a provider of the file's keys; None if the environment has keys, or the default file has none.

    Raises:
        SettingsInvalid: the file named by `AWS_SHARED_CREDENTIALS_FILE` cannot be read or lacks the profile's keys, or
            either file is damaged; the message quotes no content.
    """
    if "AWS_ACCESS_KEY_ID" in environ:
        return None
    named = environ.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(named or Path.home() / ".aws" / "credentials")
    profile = environ.get("AWS_PROFILE", "default")
    try:
        parser = _read(path)
        wrong = None if _has_keys(parser, profile) else f"has no keys of the profile {profile!r}"
    except OSError as error:
        wrong = f"cannot be read ({error.strerror})"
    if wrong is None:
        return SharedCredentials(path, profile, now)
    if named:
        raise SettingsInvalid(
            f"AWS_SHARED_CREDENTIALS_FILE {path} {wrong}; correct it, or unset the variable to use other "
            "credentials of this machine"
        )
    return None


def _has_keys(parser: configparser.ConfigParser, profile: str) -> bool:
    return all(parser.has_option(profile, name) for name in ("aws_access_key_id", "aws_secret_access_key"))


def _read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_regular(path, _MAX_BYTES).decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError) as error:  # not chained: their messages quote the line
        raise SettingsInvalid(f"{path} is not a credentials file ({type(error).__name__})") from None
    return parser
