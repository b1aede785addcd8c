"""Lanes whose jobs end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.gpu_host.lanes_script import Lanes


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    made = Lanes(tmp_path)
    yield made
    names = [path.name.removeprefix("lane-") for path in made.state.glob("lane-*")]
    made.call("end", *names)
    made.call("cancel", *(path.name for path in made.state.glob("jobs/*")))
