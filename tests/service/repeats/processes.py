"""Stand-ins for processes that share idempotency keys in one results folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from service.ledger.database import Database
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.repeats import idempotency_table
from service.repeats.idempotency import Idempotency
from service.repeats.response_files import LocalResponseFiles
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.disk_state import DiskState
from service.saving.spool.process_folder import SpoolOwner
from tests.fakes.clock import Clock


@asynccontextmanager
async def process(
    root: Path, clock: Clock | None = None, disk: Disk | None = None, retry_s: float = 0.001
) -> AsyncIterator[Idempotency]:
    owner = SpoolOwner(root, lambda: uuid4().hex)
    owner.create()
    with Database(SqliteFile(root / LEDGER_FILE, [idempotency_table.SCHEMA]), retry_s=retry_s) as ledger:
        idempotency = Idempotency(
            ledger, LocalResponseFiles(root, disk), DiskState(root), owner, clock or Clock(), ttl_s=60.0, wait_s=30.0
        )
        yield idempotency
        await idempotency.close()
        owner.unlock_folder()


def kept(root: Path) -> list[Path]:
    return [path for path in (root / ".replies").rglob("*") if path.is_file()]
