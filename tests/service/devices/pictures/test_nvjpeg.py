# ruff: noqa: N802 -- the names are nvJPEG's
from __future__ import annotations

import ctypes
from typing import Any

import pytest

from engines.cuda.api import Cuda
from engines.errors import EngineFailed, EngineOutOfMemory
from service.core.picture_work import JpegPlanes
from service.devices.pictures.lane import EncodedJpeg
from service.devices.pictures.nvjpeg import NvJpeg, NvJpegDecoder
from service.devices.pictures.steps import Plane


class Library:
    """nvJPEG's functions; `status` is what decoding returns."""

    def __init__(self) -> None:
        self.status = 0
        self.created = 0
        self.initialising = 0
        """What the next initialisation returns."""
        self.initialised: list[int] = []
        self.states: list[int] = []
        self.batches: list[tuple[int, list[int], list[int]]] = []

    def nvjpegJpegStateCreate(self, _handle: Any, state: Any) -> int:
        self.created += 1
        state._obj.value = 99 + self.created  # what `byref` refers to
        self.states.append(state._obj.value)
        return 0

    def nvjpegDecodeBatchedInitialize(self, _handle: Any, state: Any, *_: Any) -> int:
        status, self.initialising = self.initialising, 0
        if status == 0:
            self.initialised.append(state.value)
        return status

    def nvjpegDecodeBatched(self, _handle: Any, state: Any, data: Any, lengths: Any, images: Any, _stream: Any) -> int:
        planes = [channel for image in images for channel in image.channel[:3]]
        self.batches.append((state.value, list(data), planes))
        assert all(length > 0 for length in lengths)
        return self.status

    def nvjpegJpegStateDestroy(self, state: Any) -> int:
        self.states.remove(state.value)
        return 0


FILE = EncodedJpeg(4096, 10, JpegPlanes(16, 16, 1, 1), (Plane(1000, 256), Plane(2000, 256), Plane(3000, 256)))


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def decoder(library: Library) -> NvJpegDecoder:
    return NvJpegDecoder(NvJpeg(library, ctypes.c_void_p(1)))


def test_a_batch_goes_to_the_decoder_with_its_planes(cuda: Cuda, library: Library, decoder: NvJpegDecoder) -> None:
    stream = cuda.stream()
    decoder.start([FILE, FILE.moved(500)], stream)
    assert library.batches == [(100, [4096, 4096], [1000, 2000, 3000, 1500, 2500, 3500])]


def test_each_size_of_a_batch_keeps_its_state_until_the_decoder_is_closed(
    cuda: Cuda, library: Library, decoder: NvJpegDecoder
) -> None:
    stream = cuda.stream()
    for count in (1, 2, 1, 2):
        decoder.start([FILE] * count, stream)
    assert [state for state, *_ in library.batches] == [100, 101, 100, 101]
    decoder.close()
    assert library.states == []


def test_a_state_that_was_not_initialised_is_never_used(cuda: Cuda, library: Library, decoder: NvJpegDecoder) -> None:
    stream = cuda.stream()
    library.initialising = 5
    with pytest.raises(EngineOutOfMemory):
        decoder.start([FILE], stream)
    assert library.states == []
    decoder.start([FILE], stream)
    assert [state for state, *_ in library.batches] == library.initialised == library.states


@pytest.mark.parametrize(("status", "error"), [(5, EngineOutOfMemory), (3, EngineFailed), (6, EngineFailed)])
def test_a_status_becomes_an_error(
    cuda: Cuda, library: Library, decoder: NvJpegDecoder, status: int, error: type[Exception]
) -> None:
    library.status = status
    with pytest.raises(error) as raised:
        decoder.start([FILE], cuda.stream())
    assert type(raised.value) is error
