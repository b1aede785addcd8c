"""Identifies the client of a request, by API key or by address, and applies its rate limit and daily quota.

The client is kept in `request.state.client`, from which fairness and logs read it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

import structlog

from service.auth.keys import SCOPES, KeyRecord, KeysInvalid, Scope, key_digest, key_id_of, read_keys
from service.auth.limits import KeyUsage, LocalKeyUsage
from service.core.errors import Forbidden, TooManyRequests, Unauthorised

log = structlog.get_logger(__name__)
_SEND_KEY = "send a key: Authorization: Bearer KEY, or X-API-Key: KEY"
_GET_NEW_KEY = "ask the server's operator for a new one"
_UNKNOWN_KEY = f"the key is not known; check that it was copied completely, or {_GET_NEW_KEY}"


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request."""

    id: str
    """Unique id of the client: `key:ID`, or `address:HOST` where no keys are required."""
    name: str = ""
    """The key's name, for people; empty where no keys are required."""
    scopes: frozenset[Scope] = frozenset(SCOPES)

    def require(self, *scopes: Scope) -> None:
        """Raise Forbidden if the client's key has none of the scopes."""
        if self.scopes.isdisjoint(scopes):
            raise Forbidden(f"this key lacks the scope {' or '.join(map(repr, scopes))}; use a key that has it")


class HeaderLines(Protocol):
    """Access to the lines of a request's header by name, as `Headers` of Starlette gives it."""

    def getlist(self, key: str) -> list[str]:
        """The values of all lines with that name, which is not case-sensitive."""


def presented_key(headers: HeaderLines, *, basic: bool = False) -> str | None:
    """The key of a request: `Authorization: Bearer KEY` (RFC 6750), or `X-API-Key: KEY`.

    Args:
        headers: the request's header.
        basic: whether the password of HTTP Basic (RFC 7617) is also accepted as the key, with any user name.

    Raises:
        Unauthorised: the scheme is unknown; or more than one key was sent, because a proxy might check another of them
            than this server.
    """
    bearers, plain = headers.getlist("authorization"), headers.getlist("x-api-key")
    if len(bearers) + len(plain) > 1:
        raise Unauthorised("more than one key was sent; send one", code="several_keys")
    if plain:
        return plain[0].strip()
    if not bearers:
        return None
    scheme, _, key = bearers[0].strip().partition(" ")
    if basic and scheme.lower() == "basic":
        return _password(key.strip())
    if scheme.lower() != "bearer":
        raise Unauthorised(
            "the Authorization scheme is not supported; send Authorization: Bearer KEY", code="unknown_key"
        )
    return key.strip()


def _password(credentials: str) -> str:
    """The password of HTTP Basic's `base64(user:password)`; empty if there is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode("utf-8", "replace").partition(":")[2]
    except ValueError:
        return ""


@dataclass(slots=True)
class Clients:
    """The keys and their usage. Used on the event loop, except `read_changed_keys`, which blocks."""

    clock: Callable[[], float]
    now: Callable[[], datetime]
    path: Path | None = None
    """The key file; None where no keys are required."""
    shared_usage: KeyUsage | None = None
    """Usage of keys, shared by all processes; None: each process counts its own."""
    _records: Mapping[str, KeyRecord] = field(default_factory=dict)
    _seen: tuple[int, ...] = ()
    """State of the key file (`_file_state`) when it was last read."""
    _failure: str = ""
    """Reason why the file could not be read the last time; empty if it could."""
    _usage: KeyUsage = field(init=False)

    def __post_init__(self) -> None:
        self._usage = self.shared_usage or LocalKeyUsage(self.clock, self.now)

    def load(self) -> None:
        """Read the key file for the first time.

        Raises:
            KeysInvalid: the file cannot be read, or is not a key file.
        """
        if self.path is not None:
            self._seen = _file_state(self.path)
            self.replace_keys(read_keys(self.path))

    async def follow_key_file(self, every_s: float) -> None:
        """Apply changes of the key file, such as new and revoked keys, until cancelled."""
        while self.path is not None:
            await asyncio.sleep(every_s)
            keys = await asyncio.to_thread(self.read_changed_keys)
            if keys is not None:
                self.replace_keys(keys)

    def read_changed_keys(self) -> Sequence[KeyRecord] | None:
        """The keys if the file has changed; None if not, or if it cannot be read, which is logged once.

        A file that cannot be read is tried again even if it is unchanged, because new permissions do not change its
        state; one with invalid content is read again only once it has changed.
        """
        if self.path is None or (state := _file_state(self.path)) == self._seen:
            return None
        try:
            keys = read_keys(self.path)
        except KeysInvalid as error:  # the old keys stay valid: a half-written file must lock nobody out
            if str(error) != self._failure:
                log.error("keys not reloaded", reason=str(error))  # noqa: TRY400 -- the reason is enough
            self._failure = str(error)
            if not isinstance(error.__cause__, OSError):
                self._seen = state
            return None
        self._seen, self._failure = state, ""
        return keys

    def replace_keys(self, records: Sequence[KeyRecord]) -> None:
        """Replace the keys; the usage of keys that stay is kept."""
        self._records = {record.id: record for record in records}
        self._usage.keep_only(self._records)
        log.info("keys loaded", keys=len(records), revoked=sum(record.revoked_at is not None for record in records))

    def identify(self, headers: HeaderLines, address: str, *, basic: bool = False) -> Client:
        """Return the client that sent a request with these headers; for `basic` see `presented_key`.

        Raises:
            Unauthorised: the key is missing, unknown, revoked or expired.
        """
        if self.path is None:
            return Client(f"address:{address}")
        key = presented_key(headers, basic=basic)
        send_key = f"{_SEND_KEY}, or the key as password of HTTP Basic" if basic else _SEND_KEY
        if key is None:
            raise Unauthorised(send_key, code="no_key")
        record = self._records.get(key_id_of(key) or "")
        if record is None:
            key_digest(key)  # the same work as for a known id, so that timing does not reveal which ids exist
        if record is None or not record.matches(key):
            raise Unauthorised(_UNKNOWN_KEY if key else f"the key is empty; {send_key}", code="unknown_key")
        if record.revoked_at is not None:
            raise Unauthorised(f"the key was revoked; {_GET_NEW_KEY}", code="revoked_key")
        if record.expires_at is not None and record.expires_at <= self.now():
            raise Unauthorised(f"the key has expired; {_GET_NEW_KEY}", code="expired_key")
        return Client(f"key:{record.id}", record.name, record.scopes)

    def charge(self, client: Client, *, work: bool) -> None:
        """Count a request against its client's limits.

        Args:
            client: returned by `identify`.
            work: whether the request computes pictures; only such requests count for the daily quota.

        Raises:
            TooManyRequests: over the rate or the quota; nothing was counted against the quota.
            NotReady: code `ledger_unavailable`: the key's usage on other hosts cannot be read now.
        """
        record = self._records.get(client.id.removeprefix("key:"))
        if record is None:  # no keys are required, or this one was removed just now
            return
        if record.rate_per_s is not None:
            wait_s = self._usage.take_token(record.id, record.rate_per_s, record.burst)
            if wait_s:
                raise TooManyRequests(
                    f"this key's limit of {record.rate_per_s:g} requests a second is exceeded; wait for Retry-After",
                    code="rate_limited",
                    retry_after_s=wait_s,
                )
        if work and record.requests_per_day is not None:
            wait_s = self._usage.take_request(record.id, record.requests_per_day)
            if wait_s:
                raise TooManyRequests(
                    f"this key's {record.requests_per_day} requests a day are used up; they reset at midnight UTC",
                    code="quota_exhausted",
                    retry_after_s=wait_s,
                )


def _file_state(path: Path) -> tuple[int, ...]:
    """Modification time, size and inode, which change with a file's content; empty if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)
