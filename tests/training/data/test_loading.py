"""Files that cannot be used are all named in one error."""

from __future__ import annotations

import pytest

from training.data.loading import load_all
from training.errors import DataMissing


def _load_odd(number: int) -> int:
    if number % 2 == 0:
        raise DataMissing(f"{number}: not odd")
    return number * 10


def test_what_is_loaded_keeps_its_order() -> None:
    assert load_all(_load_odd, [5, 1, 3]) == [50, 10, 30]


def test_a_single_fault_is_raised_as_it_is() -> None:
    with pytest.raises(DataMissing, match=r"^2: not odd$"):
        load_all(_load_odd, [1, 2, 3])


def test_twenty_faults_are_named_and_the_rest_counted() -> None:
    with pytest.raises(DataMissing) as caught:
        load_all(_load_odd, range(50))
    first, *named, last = str(caught.value).splitlines()
    assert first == "25 of 50 files cannot be used:"
    assert named == [f"{number}: not odd" for number in range(0, 40, 2)]
    assert last == "and 5 more"
