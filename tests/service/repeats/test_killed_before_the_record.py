"""A server is killed after it stored a request's results and before it recorded the answer to the key.

The ledger is held in between, so that the kill always comes between the two steps.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.saving.spool.segment import scan
from service.saving.spool.segment_files import erase_in, list_segments, open_descriptor
from tests.serving.held_ledger import ledger_held
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]
SEVERAL = {"count": "3", "format": "png"}
JSON = {"Accept": "application/json"}
BATCH_MS = 3000
"""Time of a batch: the ledger is held after the claim and before the results, also where the test is paused for 2 s."""
pytestmark = pytest.mark.slow


def stored(folder: Path) -> list[str]:
    """Ids of the results of a folder, in its spools or saved as files, or both."""
    ids = []
    for segment in [path for owner in (folder / ".spool").iterdir() for path in list_segments(owner)]:
        with open_descriptor(segment) as descriptor:
            ids += [record.line.id for record in scan(descriptor)[0]]
    return list(dict.fromkeys([*ids, *(path.stem for path in folder.glob("??/*.json"))]))


def remove_stored(folder: Path, result_id: str) -> None:
    """Remove a result from the spools of a folder and from its files."""
    for owner in (folder / ".spool").iterdir():
        erase_in(owner, result_id)
    for path in folder.glob(f"??/{result_id}.*"):
        path.unlink()


def is_claimed(folder: Path) -> bool:
    ledger = SqliteFile(folder / LEDGER_FILE, [])
    ledger.open()
    try:
        return ledger.read(lambda each: each.execute("SELECT 1 FROM idempotency").fetchone()) is not None
    finally:
        ledger.close()


def kill_all(served: ServedProcess) -> None:
    """Kill the server with its front ends and its engine process."""
    listed = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    served.process.send_signal(signal.SIGSTOP)  # so that it does not replace those that are killed
    for child in map(int, listed):
        os.kill(child, signal.SIGKILL)
    served.kill()


class Asker:
    """A client of one server that sends one request, again and again with the same key."""

    def __init__(self, served: ServedProcess, path: str, **request: Any) -> None:
        key = {"Idempotency-Key": str(uuid4()), **request.pop("headers", {})}
        self.served, self.path, self.request = served, path, {**request, "headers": key}

    def ask(self) -> httpx.Response:
        return httpx.post(f"{self.served.url}{self.path}", timeout=60, **self.request)

    def listed(self) -> list[str]:
        """Ids of the results in the list."""
        found = httpx.get(f"{self.served.url}/v1/results", timeout=60).json()
        return [one["id"] for one in found["results"]]


@contextmanager
def killed_before_the_record(asker: Asker, results: int) -> Iterator[Path]:
    """Kill the server of a request that stored `results` and recorded no answer; restart it after the block."""
    served = asker.served
    folder = served.folder / "results"
    with ThreadPoolExecutor(1) as thread:
        asked: Future[httpx.Response] = thread.submit(asker.ask)
        wait_until(lambda: is_claimed(folder))
        with ledger_held(folder):
            wait_until(lambda: len(stored(folder)) >= results)
            kill_all(served)
        assert isinstance(asked.exception(), httpx.TransportError)
    yield folder
    served.start()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_repeat_is_answered_with_the_result_that_was_stored(tmp_path: Path, files: Files, workers: int) -> None:
    with ServedProcess(tmp_path, workers=workers, fake_batch_ms=BATCH_MS) as served:
        asker = Asker(served, "/v1/inpaint", files=files)
        with killed_before_the_record(asker, 1):
            (earlier,) = stored(tmp_path / "results")
        replies = [asker.ask(), asker.ask()]
        assert [reply.status_code for reply in replies] == [200, 200], replies[0].text
        assert {reply.headers["location"] for reply in replies} == {f"/v1/results/{earlier}"}
        assert len({reply.content for reply in replies}) == 1
        assert httpx.get(f"{served.url}/v1/results/{earlier}").content == replies[0].content
        assert asker.listed() == [earlier]


def test_a_repeat_is_answered_with_all_pictures_that_were_stored(tmp_path: Path) -> None:
    with ServedProcess(tmp_path, fake_batch_ms=BATCH_MS) as served:
        asker = Asker(served, "/v1/generate", data=SEVERAL, headers=JSON)
        with killed_before_the_record(asker, 3):
            earlier = stored(tmp_path / "results")
        reply = asker.ask()
        assert reply.status_code == 200, reply.text
        urls = [image["result_url"] for image in reply.json()["images"]]
        assert urls == [f"/v1/results/{one}" for one in earlier]
        assert sorted(asker.listed()) == sorted(earlier)
        numbers = [httpx.get(f"{served.url}{url}", headers=JSON).json()["sample"] for url in urls]
        assert numbers == [0, 1, 2]


def test_pictures_of_which_one_was_not_stored_are_replaced_by_those_of_the_repeat(tmp_path: Path) -> None:
    with ServedProcess(tmp_path, fake_batch_ms=BATCH_MS) as served:
        asker = Asker(served, "/v1/generate", data=SEVERAL, headers=JSON)
        with killed_before_the_record(asker, 3) as folder:
            first, *others = stored(folder)
            remove_stored(folder, first)
        reply = asker.ask()
        assert reply.status_code == 200, reply.text
        made = [image["result_url"].rpartition("/")[2] for image in reply.json()["images"]]
        assert sorted(asker.listed()) == sorted(made)
        assert {httpx.get(f"{served.url}/v1/results/{one}").status_code for one in others} == {410}
