"""The event loops' part of a request's cost is the CPU time of their threads in all processes."""

from __future__ import annotations

import pytest

from benchmarks.versions.loop_cost import Cost, loop_part, medians


def a_round(front_end: float, engine: float, others: float) -> Cost:
    costs = {
        "front end, event loop": front_end,
        "engine process, event loop": engine,
        "front end, other threads": others,
    }
    return Cost(costs)  # type: ignore[arg-type]


def test_event_loops_of_all_processes_are_added_up_and_other_threads_left_out() -> None:
    assert loop_part(a_round(0.5, 0.25, 2.0)) == pytest.approx(0.75)


def test_the_median_is_taken_of_each_part() -> None:
    cost = medians([a_round(0.5, 0.3, 2.0), a_round(0.7, 0.1, 2.5), a_round(0.6, 0.2, 9.0)])
    assert cost == a_round(0.6, 0.2, 2.5)
