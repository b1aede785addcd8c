from __future__ import annotations

from pathlib import Path

import pytest

from service.saving.storage.disk import ResultFiles


@pytest.fixture
def storage(tmp_path: Path) -> ResultFiles:
    return ResultFiles(tmp_path)
