import pytest

from training.gather.near_duplicates import NearDuplicateSet


@pytest.mark.parametrize(("differing", "seen"), [(0, True), (3, True), (4, False), (64, False)])
def test_fingerprint_is_known_up_to_that_many_differing_bits(differing, seen):
    known = NearDuplicateSet(3)
    known.add(0)
    assert ((1 << differing) - 1 in known) == seen


def test_nothing_is_known_to_an_empty_set_and_a_grown_one_forgets_nothing():
    known = NearDuplicateSet(0)
    assert 0 not in known
    numbers = [(i * 0x9E3779B97F4A7C15) % 2**64 for i in range(1500)]
    for number in numbers:
        known.add(number)
    assert all(number in known for number in numbers)
    assert 1 not in known
