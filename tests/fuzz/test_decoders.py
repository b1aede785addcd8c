"""The property that `make fuzz` checks for decoders holds for the seeds and a few thousand mutations."""

from __future__ import annotations

import random

import pytest

from service.core.errors import InferenceFailed, InvalidImage
from tests.fuzz.decoders import seeds, survive, with_right_sums

SEEDS = list(seeds())


def test_the_seeds_reach_every_decoder() -> None:
    taken = [survive(seed) for seed in SEEDS]
    assert taken.count(3) >= 2  # such as grey with alpha: valid as picture, mask and ids
    assert taken.count(0) >= 1
    assert len(taken) > 25


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_no_change_of_a_few_bytes_is_more_than_a_bad_image(number: int) -> None:
    rng, seed = random.Random(number), SEEDS[number]
    for _ in range(60):
        data = bytearray(seed)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            if not data:
                break
        survive(with_right_sums(bytes(data)))
        survive(bytes(data[: rng.randint(0, len(data))]))


def test_right_sums_leave_a_right_file_as_it_is() -> None:
    assert all(with_right_sums(seed) == seed for seed in SEEDS)
    assert with_right_sums(SEEDS[0][:-2]) == SEEDS[0][:-2]


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), InferenceFailed("x")])
def test_the_property_fails_for_whatever_would_be_a_500(error: Exception) -> None:
    def fail(_: bytes) -> None:
        raise error

    with pytest.raises((type(error), AssertionError)):
        survive(SEEDS[0], [fail])


def test_an_error_of_the_contract_is_a_refusal() -> None:
    def refuse(_: bytes) -> None:
        raise InvalidImage("as it should")

    assert survive(SEEDS[0], [refuse]) == 0
