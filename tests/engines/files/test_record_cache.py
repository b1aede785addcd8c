"""The keys of records on disk; tests/engines/parity/test_decisions.py has the cache with records of one kind."""

from __future__ import annotations

from engines.files.record_cache import fingerprint


def test_fingerprint_depends_on_every_fact_and_not_on_their_order():
    assert fingerprint({"a": 1, "b": "x"}) == fingerprint({"b": "x", "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
