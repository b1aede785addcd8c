"""The ledger with the tables of every room that writes to it: the one file beside the results."""

from __future__ import annotations

from collections.abc import Callable

from service.core.settings import Settings
from service.jobs import table as jobs_table
from service.jobs import webhook_table
from service.ledger.database import LEDGER_FILE, Database
from service.repeats import cache_table, idempotency_table


def shared_ledger(settings: Settings, on_failed: Callable[[], None] = lambda: None) -> Database:
    """The ledger that the settings choose; opened with `with`, which raises what `Database.__enter__` does.

    `on_failed` is told, on any thread, when it could not be used.
    """
    schemas = [one.SCHEMA for one in (jobs_table, webhook_table, idempotency_table, cache_table)]
    return Database(settings.results_dir / LEDGER_FILE, schemas, on_failed)
