"""The property that `make fuzz` checks for bodies holds for the seeds and a few thousand mutations."""

from __future__ import annotations

import random

import pytest

from service.web.multipart import PartsReader
from tests.fuzz.forms import seeds, survive

SEEDS = list(seeds())


def test_the_seeds_are_read_or_refused_as_meant() -> None:
    assert [survive(seed) for seed in SEEDS] == [2, 2, 2, 0, 2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_no_change_of_a_few_bytes_is_more_than_a_bad_body(number: int) -> None:
    rng, seed = random.Random(number), SEEDS[number]
    for _ in range(100):
        data = bytearray(seed)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        survive(bytes(data))


def test_the_property_fails_for_whatever_would_be_a_500() -> None:
    def fail(_content_type: str) -> PartsReader:
        raise ValueError("embedded null character")

    with pytest.raises(ValueError, match="null"):
        survive(SEEDS[0], fail)
