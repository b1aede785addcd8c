"""A result store is opened, or it is said what has to be mended first."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import pytest

from service.core.settings import Settings, SettingsInvalid
from service.lifecycle.drain import Drain
from service.saving.assembly import open_store
from service.saving.results import Unobserved
from service.saving.spool.process_folder import SPOOL, SpoolOwner
from service.saving.storage.disk import ResultFiles
from tests.fakes.users import ONLY_ROOT, acting_as


@ONLY_ROOT
def test_a_spool_that_another_user_made_is_named_with_what_to_do() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder is closed to other users
        folder = Path(name)
        folder.chmod(0o777)
        (folder / SPOOL).mkdir()
        with acting_as(12345, 12345):
            ResultFiles(folder).prepare()
            with pytest.raises(SettingsInvalid, match=rf"Permission denied: .*{SPOOL}.*let the user of this server"):
                asyncio.run(_open(folder))


async def _open(folder: Path) -> None:
    owner = SpoolOwner(folder, lambda: "here")
    async with open_store(Settings(results_dir=folder), Unobserved(), Drain(1.0, time.monotonic), owner):
        pass
