"""Opening the result store; an error says what has to be mended first."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import pytest

from service.core.settings import Settings, SettingsInvalid
from service.lifecycle.drain import Drain
from service.saving.assembly import flush_at_end, open_store
from service.saving.results import Unobserved
from service.saving.spool.process_folder import SPOOL, SpoolOwner
from service.saving.storage.disk import ResultFiles
from tests.fakes.captured_logs import capture_logs
from tests.fakes.users import ONLY_ROOT, acting_as
from tests.service.saving.store.slow_storage import QUICK, Elsewhere, SlowFiles, put, result
from tests.service.saving.store.slow_storage import open_store as open_store_on
from tests.serving.waiting import wait_until


@ONLY_ROOT
def test_a_spool_that_another_user_made_is_named_with_what_to_do() -> None:
    asyncio.run(asyncio.to_thread(int))  # loads the threads' modules now, as the other user may not read Python's files
    with tempfile.TemporaryDirectory() as name:  # other users cannot enter pytest's folders
        folder = Path(name)
        folder.chmod(0o777)
        (folder / SPOOL).mkdir()
        with acting_as(12345, 12345):
            ResultFiles(folder).prepare()
            with pytest.raises(SettingsInvalid, match=rf"Permission denied: .*{SPOOL}.*let the user of this server"):
                asyncio.run(_open(folder))


@pytest.mark.parametrize("kind", [SlowFiles, Elsewhere])
def test_an_end_waits_for_a_save_that_fails_only_if_the_spool_may_end_with_it(
    tmp_path: Path, kind: type[SlowFiles]
) -> None:
    storage = kind(tmp_path)
    storage.error = OSError("no route to the bucket")
    storage.gate.set()
    with open_store_on(storage, backoff=QUICK) as store, capture_logs() as logs:
        put(store, result(1))
        wait_until(lambda: store.failing_s)
        left = flush_at_end(store, 3.0)
        waited = [(line["left"], line["why"]) for line in logs if line["event"] == "waiting to save results"]
        assert waited == ([(1, "no route to the bucket")] if kind is Elsewhere else [])
        assert left.spooled == left.total == 1
        storage.error = None
        assert flush_at_end(store, 60.0).total == 0


async def _open(folder: Path) -> None:
    owner = SpoolOwner(folder, lambda: "here")
    async with open_store(Settings(results_dir=folder), Unobserved(), Drain(1.0, time.monotonic), owner):
        pass
