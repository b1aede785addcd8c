"""API keys and the file that stores their hashes.

A key reads `rtk_ID_SECRET`: eight hexadecimal digits that name it in logs and lists, and 32 random bytes (base64url).
The file stores only its SHA-256. A slow hash (scrypt, argon2) is for passwords, which can be guessed; 256 random bits
cannot, and a slow hash for every request would make the server easy to overload.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from engines.errors import RetouchError
from engines.files.atomic import replace_file
from engines.files.regular import read_regular
from engines.validation import validation_message

Scope = Literal["inference", "metrics", "results:read", "results:delete"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_MAX_FILE_BYTES = 64 * 2**20
"""Largest key file: some hundred thousand keys."""
_INVALID_NAME = "it is not a key name; use 1 to 64 letters, digits, spaces and . _ - @, and not spaces alone"
_KEY = re.compile(r"rtk_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")


def check_new_name(name: str) -> None:
    """Check that a new key's name is more than spaces, as older key files may have such names.

    Raises:
        KeyOptionInvalid: it is spaces alone.
    """
    if name and not name.strip():
        raise KeyOptionInvalid(f"name: {_INVALID_NAME}")


def _in_words(name: object, check: ValidatorFunctionWrapHandler) -> object:
    """Return a name that passes the check; otherwise ValueError, which says what a name is and not its pattern."""
    try:
        return check(name)
    except ValidationError as error:
        raise ValueError(_INVALID_NAME) from error


class KeysInvalid(RetouchError):
    """The key file cannot be read or written, or has the wrong format."""


class KeyOptionInvalid(KeysInvalid):
    """A name or a limit of a new key is one that no key can have."""

    exit_status = 2


class KeyRecord(BaseModel):
    """A key's hash, scopes and limits. A limit of None means no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[0-9a-f]{8}$")
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w.@ -]+$"), WrapValidator(_in_words)]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the whole key, in hexadecimal")
    scopes: frozenset[Scope]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    rate_per_s: float | None = Field(
        None, ge=1e-6, allow_inf_nan=False, description="requests per second, in the long run"
    )
    burst: int = Field(10, ge=1, description="requests at once, above the rate")
    requests_per_day: int | None = Field(None, ge=1, description="pictures asked for between two midnights UTC")

    def matches(self, key: str) -> bool:
        """Whether this is the record of `key`; compares in constant time."""
        return hmac.compare_digest(self.sha256, key_digest(key))


class KeyFile(BaseModel):
    """Content of the key file, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    keys: tuple[KeyRecord, ...] = ()


def new_key() -> tuple[str, str]:
    """A new key's id, and the key itself, which is shown once and not stored."""
    key_id = secrets.token_hex(4)
    return key_id, f"rtk_{key_id}_{secrets.token_urlsafe(32)}"


def key_digest(key: str) -> str:
    """SHA-256 of a key in hexadecimal, as stored in the file."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def key_id_of(key: str) -> str | None:
    """The id inside a key; None if the text is not a well-formed key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """Read the records of a key file.

    Raises:
        KeysInvalid: the file cannot be read, has the wrong format, or has an id twice.
    """
    try:
        keys = KeyFile.model_validate_json(read_regular(path, _MAX_FILE_BYTES)).keys
    except OSError as error:
        raise KeysInvalid(f"key file {path}: {error.strerror}; create it with `retouch keys create`") from error
    except ValidationError as error:
        raise KeysInvalid(
            f"key file {path}: {validation_message(error, 'field', KeyFile.model_fields)}"
        ) from None  # pydantic's own text quotes the content
    if len({key.id for key in keys}) != len(keys):
        raise KeysInvalid(f"key file {path}: an id occurs twice; remove one of the two keys")
    return keys


def write_keys(path: Path, keys: Sequence[KeyRecord]) -> bool:
    """Replace a key file with `replace_file`, which keeps its owner: a server of another user can still read it.

    Returns:
        Whether owner, group and access control list are unchanged.

    Raises:
        KeysInvalid: the file cannot be written, or the path is a link or not a file; `lock_key_file` resolves links.
    """
    content = KeyFile(keys=tuple(keys)).model_dump_json(indent=1) + "\n"
    try:
        return replace_file(path, content.encode())
    except OSError as error:
        raise _unwritable_error(path, error) from error


@contextmanager
def lock_key_file(path: Path) -> Iterator[Path]:
    """Lock out other writers of this file, so that none undoes another's change, such as a revocation.

    Yields the path of the file with all links resolved, for reading and writing. Links are resolved once, so that a
    link that is changed in between cannot redirect the write.

    Raises:
        KeysInvalid: the file's folder does not exist, or cannot be opened.
    """
    real_path = Path(os.path.realpath(path))  # `Path.resolve` would raise at links that lead in a circle
    try:
        folder = os.open(real_path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable_error(path, error) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield real_path
    finally:
        os.close(folder)


def _unwritable_error(path: Path, error: OSError) -> KeysInvalid:
    folder = path.absolute().parent
    what = f"let this user write in {folder}, make room there" if folder.is_dir() else f"make the folder {folder}"
    return KeysInvalid(f"key file {path} cannot be written: {error.strerror}; {what}, or choose another with --file")


def with_key_revoked(keys: Sequence[KeyRecord], key_id: str, now: datetime) -> tuple[KeyRecord, ...]:
    """The same keys with one of them revoked; a key that is already revoked keeps its time of revocation.

    Raises:
        KeysInvalid: no key has that id.
    """
    if all(key.id != key_id for key in keys):
        raise KeysInvalid(f"no key has the id {key_id!r}; `retouch keys list` shows them")
    return tuple(
        key.model_copy(update={"revoked_at": key.revoked_at or now}) if key.id == key_id else key for key in keys
    )
