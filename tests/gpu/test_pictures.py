"""Pictures on a real GPU with a JPEG decoder, against the CPU's code; `make test-gpu` runs these."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.errors import EngineUnavailable
from service.batching.gpu_pictures import open_picture_room
from service.batching.picture_check import difference_from_cpu
from service.devices.pictures.room import PictureRoom

pytestmark = pytest.mark.gpu


@pytest.fixture
def room() -> Iterator[PictureRoom]:
    try:
        room = open_picture_room()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    yield room
    room.close()


def test_pictures_are_those_of_the_cpu(room: PictureRoom) -> None:
    assert difference_from_cpu(room) == ""


def test_a_second_round_finds_no_memory_of_the_first(room: PictureRoom) -> None:
    assert [difference_from_cpu(room, seed) for seed in range(5)] == [""] * 5
