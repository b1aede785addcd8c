"""Checks before the server starts, so that a wrong setup fails at the start and not with the first request.

It also builds the ledger with the tables of all packages that write to it: one file beside the results.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from service.auth.exposure import check_exposure
from service.auth.keys import read_keys
from service.core.settings import Settings
from service.jobs import jobs_table, webhook_table
from service.jobs.webhook_signing import read_secrets
from service.ledger.connection import LEDGER_FILE
from service.ledger.database import Database
from service.repeats import cache_table, idempotency_table
from service.saving.assembly import open_storage
from service.telemetry.logs import configure_logs
from service.telemetry.tracing import check_tracing

_OPEN_FILES = 65_536


def run_preflight(settings: Settings) -> None:
    """Check the settings against this machine, and raise this process's limit of open files.

    Raises:
        SettingsInvalid: results cannot be saved as configured, a public address has no API keys, a package that the
            settings need is missing, the file of webhook secrets is wrong, or the ledger is damaged.
        KeysInvalid: the key file cannot be read.
    """
    check_exposure(settings)
    check_tracing(settings)
    if settings.keys_file:
        read_keys(Path(settings.keys_file))
    if settings.webhook_secret_file:
        read_secrets(Path(settings.webhook_secret_file))
    configure_logs(settings)
    _raise_open_files_limit()
    open_storage(settings)
    with make_ledger(settings):  # only opened as a check: each process opens its own
        pass


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files: each connection needs one, and 1,024 do not suffice to fill the queue."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def make_ledger(settings: Settings, on_failed: Callable[[], None] = lambda: None) -> Database:
    """Return the ledger that the settings choose, with all tables. `with` opens it; see `Database.__enter__`.

    Args:
        settings: the server's configuration; the ledger's file is in `results_dir`.
        on_failed: called when the ledger cannot be used, on any thread.
    """
    schemas = [one.SCHEMA for one in (jobs_table, webhook_table, idempotency_table, cache_table)]
    return Database(settings.results_dir / LEDGER_FILE, schemas, on_failed)
