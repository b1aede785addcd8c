"""The parts of a comparison in each round."""

from __future__ import annotations

import pytest

from benchmarks.peers.parts import PARTS, parts_of_round


@pytest.mark.parametrize("last", [False, True])
def test_parts_that_were_asked_for_are_measured_in_every_round_and_in_one_order(last: bool) -> None:
    asked = ["sigterm", "abandoned", "at_100"]
    assert parts_of_round(asked, "tiny", last=last) == ["at_100", "abandoned", "sigterm"]


def test_without_a_choice_the_last_round_has_all_parts_and_the_others_those_that_leave_the_server_as_it_is() -> None:
    assert parts_of_round([], "tiny", last=True) == list(PARTS)
    assert parts_of_round([], "tiny", last=False) == ["at_100", "at_25", "at_50", "at_75", "concurrency_32"]


def test_a_slow_model_skips_what_only_a_fast_one_can_do_in_time_unless_it_is_asked_for() -> None:
    assert "burst" not in parts_of_round([], "photos", last=True)
    assert parts_of_round(["burst"], "photos", last=False) == ["burst"]
