"""The extra cost of a saved request is computed round by round, from the processes that save."""

from __future__ import annotations

import pytest

from benchmarks.versions.loop_cost import Cost
from benchmarks.versions.saving_cost import differences, front_end_ms


def test_the_engine_process_is_left_out() -> None:
    before = Cost({"engine process, event loop": 1.0, "front end, event loop": 2.0, "front end, other threads": 1.0})  # type: ignore[arg-type]
    after = Cost({"engine process, event loop": 9.0, "front end, event loop": 2.2, "front end, other threads": 1.1})  # type: ignore[arg-type]
    assert front_end_ms(before, after, 100) == pytest.approx(3.0)


def test_a_round_that_was_slow_for_both_ways_changes_no_difference() -> None:
    rounds = {"unsaved": [5.0, 5.1, 9.0, 5.0, 5.2], "saved": [6.0, 6.1, 10.0, 6.0, 6.2]}
    assert list(differences(rounds)) == pytest.approx([1.0, 1.0, 1.0])
