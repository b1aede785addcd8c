"""The tests' own server processes: one that does not become ready is not left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.serving import served_process
from tests.serving.served_process import ServedProcess


def test_a_process_that_does_not_listen_in_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_process, "MAX_START_S", 0.1)
    served = ServedProcess(tmp_path, command=[sys.executable, "-c", "import time; time.sleep(20)"])
    with pytest.raises(AssertionError, match="in time"), served:
        pass
    assert served.process.poll() is not None
