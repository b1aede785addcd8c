"""The address of the PostgreSQL database; its passwords are kept out of logs and messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from service.core.settings import SettingsInvalid

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_DEFAULTS = {
    "application_name": "retouch",
    "connect_timeout": "3",
    "keepalives_idle": "3",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "6000",
    "target_session_attrs": "read-write",
}
"""With these values the loss of a database host is detected in 6 to 7 seconds. `read-write` avoids connections to a
standby, which would refuse every change."""
_TIMEOUTS = "-c statement_timeout=10s -c lock_timeout=5s -c idle_in_transaction_session_timeout=10s"
"""Limits on how long a frozen process can hold its locks."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the database.

    conninfo: connection string for libpq.
    shown: the address without passwords, for logs and messages.
    """

    conninfo: str = field(repr=False)
    shown: str
    _secrets: tuple[str, ...] = field(repr=False)

    def without_secrets(self, text: object) -> str:
        """Return the first line of a message, with each password replaced by `***`."""
        line = str(text).partition("\n")[0]
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def parse_address(url: str) -> Address:
    """Parse `postgresql://USER:PASSWORD@HOST:PORT/NAME?OPTION=VALUE`, as libpq does.

    Raises:
        SettingsInvalid: `url` is not such an address; the message does not quote it.
    """
    parts = _parts(url)
    if parts is None:
        raise SettingsInvalid(
            "ledger_url is not postgresql://USER:PASSWORD@HOST:PORT/NAME; in a password, write / as %2F, @ as %40, "
            "% as %25, or keep it out of the address: in PGPASSWORD or a file named by PGPASSFILE"
        )
    secrets = [parts[name] for name in _SECRETS if parts.get(name)]
    written = {
        form for secret in secrets for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret))
    }
    user = parts.get("user")
    shown = f"postgresql://{user + '@' if user else ''}{_hosts(parts)}/{parts.get('dbname', '')}"
    options = f"{_TIMEOUTS} {parts.pop('options', '')}".strip()
    whole = make_conninfo("", **{**_DEFAULTS, **parts, "options": options})
    return Address(whole, shown, tuple(sorted(written, key=len, reverse=True)))


def _hosts(parts: dict[str, str]) -> str:
    """Return the hosts with their ports, as in the address."""
    hosts, ports = parts.get("host", "localhost").split(","), parts.get("port", "").split(",")
    each = ports * len(hosts) if len(ports) == 1 else ports
    return ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, each, strict=False))


def _parts(url: str) -> dict[str, str] | None:
    """Parse the address as libpq does; None if it is invalid, or if libpq misreads part of a password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return None
    ports = str(parts.get("port") or "")
    numbers = all(one.isdigit() or not one for one in ports.split(","))
    misread = "@" in f"{parts.get('host')}{parts.get('dbname')}"
    if not url.startswith(_SCHEMES) or misread or not numbers:
        return None
    return {name: str(value) for name, value in parts.items() if value is not None}
