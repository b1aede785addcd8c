"""A storage that a test can hold up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.saving.store.slow_storage import SlowFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SlowFiles]:
    slow = SlowFiles(tmp_path)
    yield slow
    slow.gate.set()
