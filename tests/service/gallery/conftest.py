"""The index of results that the tests of the gallery share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.saving.index import ResultIndex, ledger_file


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ResultIndex]:
    one = ResultIndex(ledger_file(tmp_path), lambda: 0.0)
    one.open()
    yield one
    one.close()
