"""The index of results that the tests of the gallery share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.ledger.connection import LEDGER_FILE
from service.saving.index import ResultIndex


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ResultIndex]:
    one = ResultIndex(tmp_path / LEDGER_FILE, lambda: 0.0)
    one.open()
    yield one
    one.close()
