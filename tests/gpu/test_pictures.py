"""Pictures on a real GPU with a JPEG decoder, against the CPU's code; `make test-gpu` runs these."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.errors import EngineUnavailable
from service.batching.gpu_pictures import open_gpu_lane_pool
from service.batching.picture_check import difference_from_cpu
from service.devices.pictures.lane_pool import LanePool

pytestmark = pytest.mark.gpu


@pytest.fixture
def pool() -> Iterator[LanePool]:
    try:
        pool = open_gpu_lane_pool()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    yield pool
    pool.close()


def test_pictures_are_those_of_the_cpu(pool: LanePool) -> None:
    assert difference_from_cpu(pool) == ""


def test_a_second_round_finds_no_memory_of_the_first(pool: LanePool) -> None:
    assert [difference_from_cpu(pool, seed) for seed in range(5)] == [""] * 5
