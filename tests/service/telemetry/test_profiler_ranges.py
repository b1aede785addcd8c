"""Profiler ranges: those of nvtx where it is installed, else no-ops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from service.telemetry import profiler_ranges
from service.telemetry.profiler_ranges import stage_range


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    profiler_ranges._annotate.cache_clear()
    yield
    profiler_ranges._annotate.cache_clear()


def test_a_stage_is_a_range_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    @contextmanager
    def annotate(message: str, domain: str) -> Iterator[None]:
        seen.append((message, domain))
        yield

    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(annotate=annotate))
    with stage_range("infer", "photos/1 ×4"), stage_range("decode"):
        pass
    assert seen == [("infer photos/1 ×4", "retouch"), ("decode", "retouch")]


def test_without_nvtx_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with stage_range("infer"):
        pass
