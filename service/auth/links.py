"""Signed links to results: anyone with a link can fetch its result, without a key, until the link expires (ADR 25).

The signature is HMAC-SHA256 of the result's id and the time of expiry. The secrets are in a file beside the results:
a user who can read it can read the pictures, too. With several secrets, as during a rotation, the first signs and all
are accepted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from engines.files.regular import read_regular
from service.core.errors import Forbidden
from service.core.settings import Settings, SettingsInvalid

SECRETS_FILE = ".link-secrets"
"""Name of the file of secrets in the results folder."""
LINK_S = 3600
"""Seconds for which a link is valid; as long as OpenAI's."""
_SECRET_BYTES = 32
_MAX_FILE_BYTES = 64 * 1024
_PURPOSE = b"retouch result link 1"
"""Prefix of the signed text, so that a signature made for another purpose with the same secret opens no link."""
_EXPIRES = re.compile(r"[1-9][0-9]{0,11}")
LINK_PATH = "/v1/results/{result_id}/shared"
_LINK = re.compile(LINK_PATH.replace("{result_id}", "[0-9a-f]{32}"))


def is_link(method: str, path: str) -> bool:
    """Return whether method and path are those of a link, which needs no key; `Links.check` checks the signature."""
    return method in ("GET", "HEAD") and _LINK.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class Links:
    """Makes and checks links.

    Args:
        public_url: the address of this server for clients, without a slash at its end.
        keys: the secrets; `repr` hides them.
        now: wall clock, in seconds since the epoch.
    """

    public_url: str
    keys: Sequence[bytes] = field(repr=False)
    now: Callable[[], float]

    def url_of(self, result_id: str) -> str:
        """Return a link to a result that is valid for `LINK_S` from now."""
        expires = str(int(self.now()) + LINK_S)
        signature = _signature(self.keys[0], result_id, expires)
        return f"{self.public_url}{LINK_PATH.format(result_id=result_id)}?expires={expires}&signature={signature}"

    def check(self, result_id: str, expires: str, signature: str) -> None:
        """Check the parts of a link; the comparison takes the same time for every wrong signature.

        Raises:
            Forbidden: code `link_invalid`: this server did not sign it, or no longer has the secret; code
                `link_expired`: this server signed it, and it has expired.
        """
        sent = signature.encode("utf-8", "replace")
        made = [_signature(key, result_id, expires).encode() for key in self.keys if _EXPIRES.fullmatch(expires)]
        if True not in [hmac.compare_digest(one, sent) for one in made]:
            raise Forbidden("the link is not valid; open the complete link, with its query string", code="link_invalid")
        if self.now() >= int(expires):
            raise Forbidden("the link has expired; fetch the result by its id, with an API key", code="link_expired")


def _signature(key: bytes, result_id: str, expires: str) -> str:
    signed = b"\n".join((_PURPOSE, result_id.encode("utf-8", "replace"), expires.encode("ascii")))
    return base64.urlsafe_b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode().rstrip("=")


def open_links(settings: Settings, now: Callable[[], float]) -> Links | None:
    """Return the links of a server with a public URL; None without one.

    Raises:
        SettingsInvalid: as `read_secrets`.
    """
    if not settings.public_url:
        return None
    return Links(settings.public_url, read_secrets(settings.results_dir / SECRETS_FILE), now)


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Read the secrets, one a line in base64; make the file with a random one if there is none.

    Several processes may call this at once, and all get the same secrets.

    Raises:
        SettingsInvalid: the file cannot be read or made, or a line is not a secret; the message does not quote it.
    """
    try:
        if not path.exists():
            _make(path)
        lines = read_regular(path, _MAX_FILE_BYTES).split()
        keys = tuple(base64.b64decode(line, validate=True) for line in lines)
    except OSError as error:
        raise SettingsInvalid(f"{path} cannot be read or created ({error.strerror or error})") from None
    except binascii.Error:
        raise SettingsInvalid(f"{path} must have one base64 secret per line") from None
    if not keys or any(len(key) < _SECRET_BYTES for key in keys):
        raise SettingsInvalid(f"{path} needs secrets of at least {_SECRET_BYTES} bytes: openssl rand -base64 32")
    return keys


def _make(path: Path) -> None:
    """Create the file with a new secret, atomically and durably; a file that another process created first is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # only the owner may read it
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(_SECRET_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()
