"""The priority and timeout parameters of an inference request."""

from __future__ import annotations

import pytest

from service.core.errors import InvalidOption
from service.open_inference.requests import priority_of, timeout_of


@pytest.mark.parametrize(
    ("level", "priority"), [(0, None), (1, 9), (2, 8), (5, 5), (9, 1), (10, 0), (11, 0), (2**64, 0)]
)
def test_a_smaller_level_is_a_higher_priority(level: int, priority: int | None) -> None:
    assert priority_of(level) == priority


def test_a_timeout_is_microseconds_up_to_a_day_and_none_without_one() -> None:
    assert (timeout_of(0), timeout_of(1_500_000), timeout_of(86_400_000_000)) == (None, 1.5, 86_400.0)
    for wrong in (-1, 86_400_000_001, 2**63):
        with pytest.raises(InvalidOption, match="microseconds"):
            timeout_of(wrong)
