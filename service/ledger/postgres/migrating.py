"""Migrations: numbered SQL files, each applied once, in order, by the first server whose version includes it.

A migration only adds, so that servers of the previous version work beside newer ones: a new column has a default, and
unused columns and tables are dropped only two versions later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import psycopg
import structlog

_log = structlog.get_logger(__name__)
_LOCK = 0x7265746F756368
"""Key of the advisory lock that a server holds while it migrates: `retouch` in ASCII."""
_TRIES = 30
_TRY_S = 2
"""Seconds that one attempt waits for locks on the tables. Other servers' statements, whose limit is 5 s, queue behind
it."""
_PAUSE_S = 0.5
"""Pause between attempts in seconds, in which other servers' statements run."""


def migrations() -> list[tuple[int, str]]:
    """Return the migrations of this version in order, each as its number and its SQL."""
    folder = files("service.ledger.postgres") / "migrations"
    found = [(int(file.name.partition("_")[0]), file) for file in folder.iterdir() if file.name.endswith(".sql")]
    return [(number, file.read_text("utf-8")) for number, file in sorted(found, key=lambda one: one[0])]


def migrate(connection: psycopg.Connection[dict[str, Any]]) -> None:
    """Apply the migrations that the database lacks; a database that is newer than this server stays unchanged.

    Raises:
        psycopg.errors.LockNotAvailable: another transaction has used the tables for over a minute.
        psycopg.Error: the database cannot be reached, or its user may not create tables.
    """
    known = _version(connection)
    if known >= migrations()[-1][0]:
        _log_if_newer(known)
        return
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SET LOCAL lock_timeout = 0")  # waits for another server's migration
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS ledger_versions "
            "(version INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
        )
        known = _version(connection)  # again, under the lock: another server may have migrated meanwhile
        if lacking := [one for one in migrations() if one[0] > known]:
            _apply(connection, lacking)


def _apply(connection: psycopg.Connection[dict[str, Any]], lacking: Sequence[tuple[int, str]]) -> None:
    """Apply migrations; retried while other transactions use the tables."""
    for left in reversed(range(_TRIES)):
        try:
            with connection.transaction():  # a savepoint: an attempt that fails releases all its locks
                connection.execute(f"SET LOCAL lock_timeout = '{_TRY_S}s'".encode())
                for number, statements in lacking:
                    connection.execute(statements.encode())
                    connection.execute("INSERT INTO ledger_versions (version) VALUES (%s)", (number,))
        except psycopg.errors.LockNotAvailable:  # noqa: PERF203 -- the loop is for retries
            if not left:
                raise
            if left == _TRIES - 1:
                _log.warning("ledger migration is waiting for a transaction that uses its tables")
            time.sleep(_PAUSE_S)
        else:
            _log.info("ledger migrated", versions=[number for number, _ in lacking])
            return


def _version(connection: psycopg.Connection[dict[str, Any]]) -> int:
    """Return the number of the last applied migration; 0 for a new database."""
    exists = connection.execute("SELECT to_regclass('ledger_versions') IS NOT NULL AS found").fetchone()
    if not (exists and exists["found"]):
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) AS version FROM ledger_versions").fetchone()
    return int(row["version"]) if row else 0


def _log_if_newer(known: int) -> None:
    own = migrations()[-1][0]
    if known > own:
        _log.info("the ledger's schema is newer than this server, which can still use it", version=known, own=own)
