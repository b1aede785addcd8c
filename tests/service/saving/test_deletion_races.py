"""Results are deleted while other processes save them, inherit them or are killed; on a disk and in a bucket."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.saving.results import StoredResult
from service.saving.store import ResultStore
from tests.service.saving.saver import OWNER, body_of, deletion_of, storage_of, store_of
from tests.serving.served_process import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("keys")]


@pytest.fixture(params=["disk", "bucket"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """The bucket's URL; empty for the results folder."""
    return f"http://127.0.0.1:{request.getfixturevalue('bucket').port}" if request.param == "bucket" else ""


@contextmanager
def another(root: Path, endpoint: str, what: str) -> Iterator[subprocess.Popen[str]]:
    """Start another process on the same folder; yields it when it is ready, and kills it at the end."""
    command = [sys.executable, "-m", "tests.service.saving.saver", str(root), endpoint, what]
    pipe = subprocess.PIPE
    # `save` promises results until the pipe is full: 2,000 on a disk, 500 in a bucket, which saves a fifth as fast
    size = 16_384 if endpoint else -1
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=os.environ, pipesize=size
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def copies(root: Path, bucket: Path | None, result_id: str) -> list[Path]:
    """Return every file, except the ledger's, with the result's id in its name or the result in its content."""
    found = [path for folder in (root, bucket) if folder for path in folder.rglob("*") if path.is_file()]
    held = [path for path in found if not path.name.startswith(".ledger")]
    return [path for path in held if result_id in path.name or body_of(result_id) in path.read_bytes()]


def check(store: ResultStore, deleted: Sequence[str], kept: Sequence[str], folders: tuple[Path, Path | None]) -> None:
    assert store.index.deleted(deleted) == set(deleted)
    for result_id in deleted:
        assert store.get(result_id) is None
        assert store.sidecar(result_id) is None
        assert copies(*folders, result_id) == []
    for result_id in kept:
        assert store.get(result_id) == (body_of(result_id), "image/png")


def finish(store: ResultStore, root: Path) -> None:
    """Inherit what dead processes left, and complete all pending saves and deletions."""
    store.inherit()
    assert store.flush(60) == 0
    for _ in range(3):
        asyncio.run(deletion_of(store, root, later_s=3600).finish())


@pytest.mark.parametrize("count", [1, 20])
def test_what_is_deleted_while_its_process_saves_it_and_is_killed_stays_deleted(
    tmp_path: Path, endpoint: str, count: int, request: pytest.FixtureRequest
) -> None:
    root, bucket = tmp_path / "results", request.getfixturevalue("bucket").folder if endpoint else None
    deleted: list[str] = []
    kept: list[str] = []
    with store_of(root, endpoint) as store:
        deletion = deletion_of(store, root)
        with another(root, endpoint, "save") as saver:
            assert saver.stdout is not None
            for number in range(count):
                result_id = saver.stdout.readline().strip()
                if number % 2 == 0:
                    asyncio.run(deletion.delete(result_id, OWNER))
                    deleted.append(result_id)
                else:
                    kept.append(result_id)
            saver.kill()  # while it saves deleted results, and after it promised more
            kept += [line.strip() for line in saver.stdout if len(line) == 33]
        finish(store, root)
        check(store, deleted, kept, (root, bucket))
        assert store.index.deleted(kept) == set()


@pytest.mark.parametrize("moment", [0, 11])
def test_a_deletion_that_is_killed_is_either_finished_by_others_or_has_not_begun(
    tmp_path: Path, endpoint: str, moment: int, request: pytest.FixtureRequest
) -> None:
    root, bucket = tmp_path / "results", request.getfixturevalue("bucket").folder if endpoint else None
    ids = [f"{number:032x}" for number in range(40)]
    with store_of(root, endpoint) as store:
        for result_id in ids:
            body = body_of(result_id)
            store.put(store.reserve(len(body)), StoredResult(result_id, body, "image/png", {"owner": OWNER}))
        store.flush(60)
        with another(root, endpoint, "delete") as deleter:
            assert deleter.stdin is not None
            assert deleter.stdout is not None
            deleter.stdin.write("\n".join(ids) + "\n")
            deleter.stdin.flush()
            told = [deleter.stdout.readline().strip() for _ in range(moment)]
            deleter.kill()
            told += [line.strip() for line in deleter.stdout if len(line) == 33]
        buried = store.index.deleted(ids)
        assert set(told) <= buried, "whoever was told that a result is deleted can rely on it"
        assert len(buried) <= len(told) + 1
        finish(store, root)
        check(store, sorted(buried), [one for one in ids if one not in buried], (root, bucket))


def test_a_result_that_is_taken_up_after_its_deletion_is_not_saved(tmp_path: Path, endpoint: str) -> None:
    """Such as after a power failure that undid the removal from the spool, but not the tombstone."""
    root, result_id = tmp_path / "results", "ab" * 16
    dying = store_of(root, endpoint).start()
    dying._backlog.close()  # saves nothing any more, like a process that hangs
    body = body_of(result_id)
    dying._spooled.write(result_id, body, {"id": result_id, "owner": OWNER, "media_type": "image/png"})
    dying.index.bury(result_id, OWNER)
    dying.close()
    with store_of(root, endpoint) as heir:
        finish(heir, root)
        assert storage_of(root, endpoint).read(result_id) is None
        assert heir.pending == 0
        assert copies(root, None, result_id) == []


def test_a_write_that_the_bucket_completes_after_the_deletion_is_removed_again(tmp_path: Path, endpoint: str) -> None:
    root, result_id = tmp_path / "results", "cd" * 16
    body = body_of(result_id)
    with store_of(root, endpoint) as store:
        store.put(store.reserve(len(body)), StoredResult(result_id, body, "image/png", {"owner": OWNER}))
        assert asyncio.run(deletion_of(store, root).delete(result_id, OWNER))
        store.flush(60)
        late: dict[str, Any] = {"id": result_id, "media_type": "image/png"}
        storage_of(root, endpoint).write(body, late)  # an S3 client sent it earlier and gave up on it
        assert store.get(result_id) is None
        asyncio.run(deletion_of(store, root, later_s=3600).finish())
        assert storage_of(root, endpoint).read(result_id) is None


def test_an_unreachable_bucket_delays_only_the_removal(tmp_path: Path, proxy: Any, bucket: Any) -> None:
    root, result_id = tmp_path / "results", "ef" * 16
    body = body_of(result_id)
    with store_of(root, proxy.url) as store:
        store.put(store.reserve(len(body)), StoredResult(result_id, body, "image/png", {"owner": OWNER}))
        assert store.flush(60) == 0
        deletion = deletion_of(store, root, later_s=3600)
        proxy.become("gone")
        assert not asyncio.run(deletion.delete(result_id, OWNER))
        assert store.get(result_id) is None
        asyncio.run(deletion.finish())
        assert deletion.left == 1
        assert any(result_id in name for name in bucket.names)
        proxy.become("good")
        asyncio.run(deletion.finish())
        assert deletion.left == 0
        assert not any(result_id in name for name in bucket.names)
