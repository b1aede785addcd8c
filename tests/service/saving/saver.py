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
    """The results folder, or the bucket at that endpoint."""
    files = ResultFiles(root)
    files.prepare()
    return open_object_storage(ObjectLocation("s3://results/some", endpoint)) if endpoint else files


def store_of(root: Path, endpoint: str) -> ResultStore:
    """A store of this process on the shared folder."""
    spool = SpoolFiles(SpoolOwner(root, lambda: uuid4().hex))
    return ResultStore(storage_of(root, endpoint), spool, SpoolLimits(100_000, 2**40), threads=2, backoff=QUICK)


def deletion_of(store: ResultStore, root: Path, later_s: float = 0.0) -> Deletion:
    """The deletion of this process; its clock is ahead by `later_s`, so that `finish` waits for nothing."""
    return Deletion(store, ThumbnailFiles(root, store.index), (), lambda: time.time() + later_s, 0.0)


def body_of(result_id: str) -> bytes:
    """The content of a result, which can be found in any file that holds it."""
    return b"picture of " + result_id.encode() + bytes(500)


def tell(line: str) -> None:
    """Print a line for the test at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save(store: ResultStore) -> None:
    """Promise results without end; each id is printed when it is promised."""
    while True:
        result_id = uuid4().hex
        body = body_of(result_id)
        store.put(store.reserve(len(body)), StoredResult(result_id, body, "image/png", {"owner": OWNER}))
        tell(result_id)


async def delete(deletion: Deletion, result_ids: Iterable[str]) -> None:
    """Delete results one after the other; each id is printed when it is deleted."""
    for result_id in result_ids:
        await deletion.delete(result_id, OWNER)
        tell(result_id)


def main(root: Path, endpoint: str, what: str) -> None:
    """Run until killed, or until the ids on the standard input are deleted."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with store_of(root, endpoint) as store:
        tell("ready")
        if what == "save":
            save(store)
        asyncio.run(delete(deletion_of(store, root), map(str.strip, sys.stdin)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
