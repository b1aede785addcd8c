"""Migrations: numbered files of SQL, each applied once, in order, by the first server that has it.

A migration only adds, so that servers of the version before go on beside newer ones: a new column has a default, and
what is no longer used is dropped two versions later.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import psycopg
import structlog

_log = structlog.get_logger(__name__)
_LOCK = 0x7265746F756368
"""Key of the advisory lock that one server holds while it migrates: `retouch` in ASCII."""


def migrations() -> list[tuple[int, str]]:
    """The migrations of this version: number and SQL, in order."""
    folder = files("service.ledger.postgres") / "migrations"
    found = [(int(file.name.partition("_")[0]), file) for file in folder.iterdir() if file.name.endswith(".sql")]
    return [(number, file.read_text("utf-8")) for number, file in sorted(found, key=lambda one: one[0])]


def migrate(connection: psycopg.Connection[dict[str, Any]]) -> None:
    """Apply the migrations that the database lacks; one that is newer than this server stays as it is.

    Raises:
        psycopg.Error: the database is away, or its user may not create tables.
    """
    known = _version(connection)
    if known >= migrations()[-1][0]:
        _tell_if_newer(known)
        return
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS ledger_versions "
            "(version INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
        )
        known = _version(connection)  # after that statement, which sees what another server created meanwhile
        for number, statements in migrations():
            if number > known:
                connection.execute(statements.encode())
                connection.execute("INSERT INTO ledger_versions (version) VALUES (%s)", (number,))
                _log.info("ledger migrated", version=number)


def _version(connection: psycopg.Connection[dict[str, Any]]) -> int:
    """The number of the last migration that was applied; 0 for a new database."""
    exists = connection.execute("SELECT to_regclass('ledger_versions') IS NOT NULL AS found").fetchone()
    if not (exists and exists["found"]):
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) AS version FROM ledger_versions").fetchone()
    return int(row["version"]) if row else 0


def _tell_if_newer(known: int) -> None:
    own = migrations()[-1][0]
    if known > own:
        _log.info("the ledger is of a newer version; both are served", version=known, own=own)
