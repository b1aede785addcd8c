"""The preview: a run whose fills are worse than those of its initial net has a reason to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from training.data.device_cache import PictureCache
from training.data.pictures import load_pictures
from training.fill_config import FillConfig
from training.loop.runtime import Runtime
from training.losses.vgg16 import NormalisedFeatures, VGG16Features
from training.tasks.fill_preview import FillPreview

CPU = torch.device("cpu")
Make = Callable[..., FillPreview]


class Painter(nn.Module):
    """A net whose fill is the photograph, blended with grey by `grey`, minus a grid pattern of contrast `weave`."""

    def __init__(self, *, grey: float = 0.0, weave: float = 0.0) -> None:
        super().__init__()
        self._grey, self._weave = grey, weave

    def forward(self, image: Tensor, hole: Tensor) -> Tensor:
        bright = torch.arange(image.shape[-1]) % 4 == 0
        return image.lerp(torch.full_like(image, 0.5), self._grey) - self._weave * (bright | bright[:, None])


START = Painter(grey=0.9, weave=0.1)


@pytest.fixture
def make_preview(fill_config: Callable[..., FillConfig], photographs: Path) -> Make:
    config = fill_config(
        data={"path": str(photographs), "load_side": 72, "crop": 64, "threads": 1, "limit": 2}, coverage=[0.5, 0.7]
    )
    torch.manual_seed(0)  # VGG16's filters are random
    held_out, features = PictureCache(load_pictures(config.data), CPU), NormalisedFeatures(VGG16Features())
    deeper = NormalisedFeatures(VGG16Features(5))
    deeper.load_state_dict(features.state_dict(), strict=False)

    def make(rank: int = 0, *, deep: bool = False) -> FillPreview:
        return FillPreview(config, Runtime(CPU, "fp32", rank=rank), held_out, deeper if deep else features)

    return make


def test_distance_and_grid_above_those_of_the_start_are_a_reason(make_preview: Make) -> None:
    preview = make_preview()
    preview.measure_start(START)
    assert preview.reason_to_stop(5) is None
    preview.measure(START)
    assert preview.reason_to_stop(5) is None, "it is as good"
    worse = preview.measure(Painter(grey=0.9, weave=0.102))
    assert "grid_rows" in str(preview.reason_to_stop(5)), worse


def test_a_better_grid_excuses_a_distance_a_little_above_and_not_one_far_above(make_preview: Make) -> None:
    preview = make_preview()
    start = preview.measure_start(Painter(grey=0.5, weave=0.02))["validation_distance"]
    near = preview.measure(Painter(grey=0.505, weave=0.02))["validation_distance"]
    assert start < near < 1.05 * start
    assert preview.reason_to_stop(5) is None
    far = preview.measure(Painter(grey=1.0))
    assert far["validation_grid_rows"] == 0
    assert "is more than 1.05 times" in str(preview.reason_to_stop(5))


def test_a_run_that_goes_on_knows_the_reason_before_it_measures_again(make_preview: Make) -> None:
    ours = make_preview()
    ours.measure_start(Painter())
    ours.measure(START)
    leader, other = make_preview(), make_preview(rank=1)
    for process in (leader, other):
        process.load(ours.state())
    assert leader.reason_to_stop(5) == ours.reason_to_stop(5) is not None
    assert other.reason_to_stop(5) is None, "it does not measure, so what it knows would grow old"


def test_deeper_blocks_are_a_figure_of_their_own(make_preview: Make) -> None:
    figures = make_preview().measure(START)
    deep = make_preview(deep=True).measure(START)
    assert deep.pop("validation_deep_distance") > 0
    assert deep == figures
