"""Stored decisions are found again; a damaged entry counts as missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.parity.decisions import Decision, DecisionCache
from tests.fakes.captured_logs import capture_logs

DECISION = Decision(precision="bf16", why="52.0 dB")


def test_what_was_put_is_found_again(tmp_path):
    DecisionCache(tmp_path / "new").put("k", DECISION)
    assert DecisionCache(tmp_path / "new").get("k") == DECISION
    assert DecisionCache(tmp_path / "new").get("other") is None
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["k.json"]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"precision": "bf16"}', b"\xff\xfe", b'{"precision":3,"why":""}'])
def test_damaged_entry_is_not_found_and_can_be_put_anew(tmp_path, damage):
    cache = DecisionCache(tmp_path)
    (tmp_path / "k.json").write_bytes(damage)
    with capture_logs() as logs:
        assert cache.get("k") is None
    assert [line["event"] for line in logs] == ["decision ignored"]
    cache.put("k", DECISION)
    assert cache.get("k") == DECISION


def test_cache_that_cannot_be_written_is_only_a_warning(tmp_path):
    (tmp_path / "file").write_text("no directory")
    cache = DecisionCache(Path(tmp_path / "file"))
    with capture_logs() as logs:
        cache.put("k", DECISION)
        assert cache.get("k") is None
    assert [line["event"] for line in logs] == ["decision not kept", "decision ignored"]


def test_full_disk_is_only_a_warning_and_leaves_nothing_behind(tmp_path, full_disk):
    with capture_logs() as logs:
        DecisionCache(tmp_path).put("k", DECISION)
    assert [(line["event"], line["reason"]) for line in logs] == [("decision not kept", "No space left on device")]
    assert list(tmp_path.iterdir()) == []
