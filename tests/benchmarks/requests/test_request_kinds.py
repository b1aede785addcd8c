"""A server's warnings and errors during a measurement: benchmarks/requests/request_kinds.py."""

from __future__ import annotations

import json

from benchmarks.requests.request_kinds import count_complaints


def test_complaints_are_counted_by_event_and_reason_and_the_rest_is_left_out() -> None:
    lines = [
        json.dumps({"level": "info", "event": "ready"}),
        *[json.dumps({"level": "error", "event": "the ledger is not used", "reason": "copied over"})] * 3,
        json.dumps({"level": "warning", "event": "it is tried again", "error": "too slow"}),
        "Traceback (most recent call last):",
        "42",
        '["a", "list"]',
        '{"event": "of a library, without a level"}',
    ]
    assert count_complaints(lines) == {
        "error: the ledger is not used: copied over": 3,
        "warning: it is tried again: too slow": 1,
        "Traceback (most recent call last):": 1,
        "42": 1,
        '["a", "list"]': 1,
        '{"event": "of a library, without a level"}': 1,
    }
