"""The cache returns a plan only if it is whole, and only for the facts that it was built for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engines.plan_cache import PlanCache
from tests.fakes.captured_logs import capture_logs
from tests.fakes.disk import fill, tmpfs

FACTS = {"model": "photos/1", "gpu": "NVIDIA L4", "capability": (8, 9), "batch": 8}
CONTENT = bytes(range(256)) * 40


@pytest.fixture
def cache(tmp_path) -> PlanCache:
    cache = PlanCache(tmp_path / "plans")
    cache.put(FACTS, CONTENT)
    return cache


def test_plan_comes_back_as_it_was(cache):
    assert cache.get(dict(reversed(FACTS.items()))) == CONTENT
    assert cache.path(FACTS).name.startswith("photos-1-")
    assert [path.suffix for path in cache.path(FACTS).parent.iterdir()] == [".plan"]


def test_other_facts_have_no_plan(cache):
    for name in FACTS:
        assert cache.get({**FACTS, name: "other"}) is None


def test_foreign_plan_under_our_name_is_ignored(cache):
    other = {**FACTS, "gpu": "NVIDIA T4"}
    cache.path(other).write_bytes(cache.path(FACTS).read_bytes())
    with capture_logs() as logs:
        assert cache.get(other) is None
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("plan ignored", "it was built for another host, model or version")
    ]


@pytest.mark.parametrize("keep", [0, 5, 17, 19, 60, 400, -1], ids=lambda n: f"first {n} bytes")
def test_truncated_plan_is_ignored(cache, keep):
    path = cache.path(FACTS)
    path.write_bytes(path.read_bytes()[:keep])
    with capture_logs() as logs:
        assert cache.get(FACTS) is None
    assert [line["event"] for line in logs] == ["plan ignored"]


@pytest.mark.parametrize("at", [0, 16, 19, 25, -1])
def test_plan_with_a_flipped_byte_is_ignored(cache, at):
    path = cache.path(FACTS)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    assert cache.get(FACTS) is None


def test_header_that_is_json_but_no_object_is_ignored(cache):
    cache.path(FACTS).write_bytes(b"RETOUCH-PLAN-1\0\0" + (2).to_bytes(4, "little") + b"[]" + CONTENT)
    assert cache.get(FACTS) is None


def test_damaged_plan_can_be_put_anew_and_a_refused_one_forgotten(cache):
    cache.path(FACTS).write_bytes(b"")
    cache.put(FACTS, CONTENT)
    assert cache.get(FACTS) == CONTENT
    cache.discard(FACTS)
    cache.discard(FACTS)
    assert cache.get(FACTS) is None


def test_cache_that_cannot_be_written_is_only_a_warning(tmp_path):
    (tmp_path / "file").write_text("no directory")
    with capture_logs() as logs:
        PlanCache(tmp_path / "file").put(FACTS, CONTENT)
    assert [line["event"] for line in logs] == ["plan not kept"]


def test_full_disk_is_only_a_warning_and_leaves_nothing_behind(tmp_path, full_disk):
    with capture_logs() as logs:
        PlanCache(tmp_path).put(FACTS, CONTENT)
    assert [(line["event"], line["reason"]) for line in logs] == [("plan not kept", "No space left on device")]
    assert list(tmp_path.iterdir()) == []


def test_refused_plan_that_cannot_be_removed_is_only_a_warning(cache, monkeypatch):
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with capture_logs() as logs:
        cache.discard(FACTS)
    assert [(line["event"], line["reason"]) for line in logs] == [("plan not removed", "Read-only file system")]


def test_on_a_full_disk_a_plan_is_not_kept_and_the_one_before_is_whole(tmp_path):
    with tmpfs(tmp_path / "small", "256k") as folder:
        cache = PlanCache(folder / "plans")
        cache.put(FACTS, CONTENT)
        fill(folder)
        with capture_logs() as logs:
            cache.put(FACTS, bytes(100_000))
            cache.put({**FACTS, "batch": 4}, bytes(100_000))
        assert [line["reason"] for line in logs] == ["No space left on device"] * 2
        assert cache.get(FACTS) == CONTENT
        assert cache.get({**FACTS, "batch": 4}) is None
        assert [path.suffix for path in (folder / "plans").iterdir()] == [".plan"]
