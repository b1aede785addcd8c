"""The comparison of a GPU in host memory, right or wrong, with the CPU's code."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engines.cuda.api import Cuda, Stream
from service.batching.picture_check import difference_from_cpu
from service.devices.pictures.lane import PictureLane
from service.devices.pictures.lane_pool import LanePool
from service.devices.pictures.lane_thread import LaneOptions
from tests.fakes.jpeg_planes import FakePlanesDecoder
from tests.fakes.picture_gpu import FakePictureGpu
from tests.fakes.picture_kernels import EmulatedKernels


def test_a_gpu_that_computes_like_the_cpu_shows_no_difference(picture_gpu: FakePictureGpu) -> None:
    pool = picture_gpu.open_lane_pool()
    assert difference_from_cpu(pool) == ""
    pool.close()


class DarkDecoder(FakePlanesDecoder):
    """A decoder whose pictures are somewhat too dark."""

    offset = -3


class FaintlyDarkDecoder(FakePlanesDecoder):
    """A decoder that is one level off."""

    offset = -1


@pytest.mark.parametrize(
    ("decoder", "found"), [(DarkDecoder, "a tile differs"), (FaintlyDarkDecoder, "outside the mask differs")]
)
def test_a_gpu_whose_pixels_are_off_is_found(
    picture_gpu: FakePictureGpu, decoder: type[FakePlanesDecoder], found: str
) -> None:
    picture_gpu.decoder = decoder(picture_gpu.runtime)
    pool = picture_gpu.open_lane_pool()
    assert found in difference_from_cpu(pool)
    pool.close()


def test_a_gpu_whose_second_lane_alone_is_off_is_found(picture_gpu: FakePictureGpu) -> None:
    decoders = [FakePlanesDecoder(picture_gpu.runtime), DarkDecoder(picture_gpu.runtime)]

    def open_lane(cuda: Cuda) -> PictureLane:
        return PictureLane(cuda, decoders.pop(0), picture_gpu.kernels)

    pool = LanePool(Cuda(picture_gpu.runtime), 2, LaneOptions(open_lane, 4, 8, picture_gpu.clock))
    assert "a tile differs" in difference_from_cpu(pool)
    pool.close()


class LowMasks(EmulatedKernels):
    """Kernels that cut the mask of a tile one row too low."""

    def launch(self, name: str, height: int, width: int, values: Sequence[int], stream: Stream) -> None:
        if name == "cut_mask":
            values = (values[0] + values[1], *values[1:])
        super().launch(name, height, width, values, stream)


def test_a_gpu_that_cuts_masks_wrongly_is_found(picture_gpu: FakePictureGpu) -> None:
    picture_gpu.kernels = LowMasks(picture_gpu.library, picture_gpu.runtime)
    pool = picture_gpu.open_lane_pool()
    assert "the mask of a tile differs" in difference_from_cpu(pool)
    pool.close()
