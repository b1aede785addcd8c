"""A GPU in host memory that decodes, cuts and pastes pictures."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.cuda.api import Cuda
from engines.errors import EngineError
from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.picture_work import PictureWork
from service.core.pictures import Bool2D
from service.devices.pictures.lane import PictureLane
from service.devices.pictures.lane_pool import LanePool
from service.devices.pictures.lane_thread import LaneOptions
from service.imaging.files.header import read_header
from service.imaging.gpu_work import plan_gpu_work
from service.imaging.tasks import MaskPlan
from tests.fakes.clock import Clock
from tests.fakes.cuda import FakeRuntime
from tests.fakes.jpeg_planes import FakePlanesDecoder
from tests.fakes.picture_kernels import EmulatedKernels


@dataclass
class FakePictureGpu:
    """Opens pools; `missing` makes that fail, and `clock` tells for how long a decode has taken.

    lanes, batch, places: of the pools; the places are those of a lane.
    """

    library: ctypes.CDLL
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    missing: EngineError | None = None
    clock: Clock = field(default_factory=Clock)
    lanes: int = 2
    batch: int = 4
    places: int = 8
    asked: bool = False
    """Whether a pool was asked for."""
    pools: list[LanePool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decoder = FakePlanesDecoder(self.runtime)
        self.kernels = EmulatedKernels(self.library, self.runtime)

    def open_lane_pool(self) -> LanePool:
        self.asked = True
        if self.missing is not None:
            raise self.missing

        def open_lane(cuda: Cuda) -> PictureLane:
            return PictureLane(cuda, self.decoder, self.kernels)

        self.pools.append(
            LanePool(Cuda(self.runtime), self.lanes, LaneOptions(open_lane, self.batch, self.places, self.clock))
        )
        return self.pools[-1]


def work_on(data: bytes, mask: Bool2D, crops: Sequence[Crop], manifest: Manifest) -> PictureWork:
    """The work on a picture that a GPU may decode."""
    header = read_header(data, max_pixels=10**6)
    planned = plan_gpu_work(data, header, lambda: MaskPlan(mask, float(mask.mean()), list(crops)), manifest)
    assert planned is not None, "left to the CPU"
    return planned[0]
