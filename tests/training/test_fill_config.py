"""Contradictory values in a FillNet config are refused with advice on what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from training.fill_config import FillConfig

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "judge with two widths": ({"judge": {"widths": [8, 8]}}, "six positive numbers"),
    "judge whose ramp falls": ({"judge": {"ramp": [20, 10]}}, "two numbers of steps, the smaller first"),
    "coverage that falls": ({"coverage": [0.5, 0.1]}, "two numbers between 0 and 1"),
    "perceptual share without features": ({"features": None, "shares": {"perceptual": 1.0}}, "needs VGG16"),
    "weights of two blocks": ({"layers": [1, 1]}, "at least 3 items"),
    "half precision": ({"precision": "fp16"}, "use bf16"),
    "a share of small patches without their judge": ({"shares": {"perceptual": 0, "patches": 1}}, "need each other"),
    "a share of VGG16's judge without it": (
        {"shares": {"perceptual": 0, "projected": 1}},
        "section projected need each",
    ),
    "a judge on features that are not loaded": (
        {"shares": {"perceptual": 0, "projected": 1}, "projected": {}},
        "uses the features of shares.perceptual",
    ),
    "options of going on without a start": (
        {"stop_after": 5, "judge": {"alone": 2}},
        "stop_after, judge.alone: only for a run that starts from `initial`",
    ),
    "a stop without a distance": ({"stop_after": 5, "initial": "a.pth"}, "stop_after needs data.validation and VGG16"),
    "a bar that nothing is measured for": (
        {"shares": {"perceptual": 0, "patches": 1}, "patches": {"min_accuracy": 0.51}},
        "set judge.alone, or leave it out",
    ),
    "room for shards that never come": ({"capacity_gb": 1.0}, "capacity_gb is for data.layout shards"),
}


@pytest.mark.parametrize("name", WRONG)
def test_values_that_contradict_each_other_are_refused(name: str, fill_config: Callable[..., FillConfig]) -> None:
    fill_config()
    options, reason = WRONG[name]
    with pytest.raises(ValidationError, match=reason):
        fill_config(**options)


def test_a_crop_that_the_net_cannot_take_is_refused(
    fill_run: Callable[..., dict[str, Any]], fill_config: Callable[..., FillConfig]
) -> None:
    data = fill_run()["data"]
    with pytest.raises(ValidationError, match="is not a multiple of"):
        fill_config(data={**data, "crop": 72})
    with pytest.raises(ValidationError, match="is for pix2pix"):
        fill_config(data={**data, "layout": "pairs"})
