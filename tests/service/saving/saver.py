"""A process that saves results, or deletes them, until it is killed: `python -m tests.service.saving.saver ...`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

import structlog

from service.gallery.deletion import Deletion
from service.gallery.thumbnails import ThumbnailFiles
from service.saving.results import StoredResult
from service.saving.spool.capacity import SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.storage.contract import Storage
from service.saving.storage.disk import ResultFiles
from service.saving.storage.s3 import ObjectLocation, open_object_storage
from service.saving.store import ResultStore
from tests.service.saving.store.slow_storage import QUICK

OWNER = "1f2e3d4c"


def storage_of(root: Path, endpoint: str) -> Storage:
    """Return the storage: the bucket at the endpoint, or the results folder if the endpoint is empty."""
    files = ResultFiles(root)
    files.prepare()
    return open_object_storage(ObjectLocation("s3://results/some", endpoint)) if endpoint else files


def store_of(root: Path, endpoint: str) -> ResultStore:
    """Return a store of this process on the shared folder."""
    spool = SpoolFiles(SpoolOwner(root, lambda: uuid4().hex))
    return ResultStore(storage_of(root, endpoint), spool, SpoolLimits(100_000, 2**40), threads=2, backoff=QUICK)


def deletion_of(store: ResultStore, root: Path, later_s: float = 0.0) -> Deletion:
    """Return this process's Deletion; its clock is `later_s` ahead, so that `finish` need not wait."""
    return Deletion(store, ThumbnailFiles(root, store.index), (), lambda: time.time() + later_s, 0.0)


def body_of(result_id: str) -> bytes:
    """Return the content of a result; it is unique, so that every file with a copy can be found."""
    return b"picture of " + result_id.encode() + bytes(500)


def tell(line: str) -> None:
    """Print a line for the test at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save(store: ResultStore) -> None:
    """Promise results until killed; prints the id of each promised result."""
    while True:
        result_id = uuid4().hex
        body = body_of(result_id)
        store.put(store.reserve(len(body)), StoredResult(result_id, body, "image/png", {"owner": OWNER}))
        tell(result_id)


async def delete(deletion: Deletion, result_ids: Iterable[str]) -> None:
    """Delete results one after the other; prints the id of each deleted result."""
    for result_id in result_ids:
        await deletion.delete(result_id, OWNER)
        tell(result_id)


def main(root: Path, endpoint: str, what: str) -> None:
    """Save until killed, or delete the ids from the standard input."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with store_of(root, endpoint) as store:
        tell("ready")
        if what == "save":
            save(store)
        asyncio.run(delete(deletion_of(store, root), map(str.strip, sys.stdin)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
