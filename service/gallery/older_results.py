"""Enters results that are older than the index into it, once for each results folder."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import structlog

from service.core.errors import NotReady, ServiceError
from service.ledger.contract import Transaction
from service.saving import index_table
from service.saving.index import ResultIndex
from service.saving.index_table import ResultRow, row_of
from service.saving.storage.contract import Storage

_log = structlog.get_logger(__name__)
_LOCK = ".read-in.lock"
_BATCH = 200
_PAUSE_S = 0.02
"""Seconds to pause after `_BATCH` sidecars: no client waits for this work, and requests need the core."""


def index_older_results(storage: Storage, index: ResultIndex, root: Path, stop: threading.Event) -> int:
    """Enter every stored result into the index from its sidecar, unless that was done before; return how many.

    Blocks for a long time. While one process does this, others return 0; if it is stopped or killed, or some sidecars
    cannot be read, the next start begins again.

    Args:
        storage: the durable storage.
        index: the index of its results.
        root: folder of the lock file.
        stop: ends it early.

    Raises:
        OSError: the storage cannot be listed.
        NotReady: code `ledger_unavailable`; or code `storage_unavailable`: some sidecars cannot be read now, raised
            after all others were entered.
    """
    with (root / _LOCK).open("w") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if index.read(index_table.older_are_indexed):
            return 0
        return _read_all(storage, index, stop)
    return 0


def _read_all(storage: Storage, index: ResultIndex, stop: threading.Event) -> int:
    entered, failed = 0, list[NotReady]()
    sidecars = (one.result_id for one in storage.entries() if one.is_ours and one.name.endswith(".json"))
    while ids := list(islice(sidecars, _BATCH)):
        rows = list(_rows(storage, ids, failed))

        def enter(ledger: Transaction, rows: Iterable[ResultRow] = rows) -> None:
            index_table.enter(ledger, rows)

        index.write(enter)
        entered += len(rows)
        if stop.wait(_PAUSE_S):
            return entered
    if failed:
        raise failed[0]
    index.write(index_table.set_older_indexed)
    if entered:
        _log.info("older results indexed", results=entered)
    return entered


def _rows(storage: Storage, result_ids: Iterable[str], failed: list[NotReady]) -> Iterator[ResultRow]:
    """Yield the rows of results; errors of sidecars that cannot be read now are added to `failed`."""
    for result_id in result_ids:
        try:
            sidecar = storage.read_sidecar(result_id)
        except NotReady as error:  # noqa: PERF203 -- one result must not stop the others
            failed.append(error)
        except ServiceError:  # a damaged sidecar is served as before, and not listed
            continue
        else:
            if sidecar is not None:
                yield row_of({**sidecar, "id": result_id}, saved=True)
