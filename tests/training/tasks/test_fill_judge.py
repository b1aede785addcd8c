"""The judges of FillNet's fills."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from training.fill_config import FillConfig
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.losses.vgg16 import VGG16Features
from training.tasks.fillnet import FillTrainee


def trainee(config: FillConfig) -> FillTrainee:
    made = FillTrainee(config, Runtime(torch.device("cpu"), config.precision))
    made.begin_phase(config.phase[0])
    return made


def test_a_judge_on_vgg16_takes_part_starts_from_a_file_and_its_state_comes_back(
    tmp_path: Path, fill_config: Callable[..., FillConfig]
) -> None:
    state = {key: value for key, value in VGG16Features(5).state_dict().items() if not key.startswith("scale.")}
    save_file(state, tmp_path / "vgg16.safetensors")
    options = {
        "features": tmp_path / "vgg16.safetensors",
        "layers": (1, 1, 1, 1, 1),
        "shares": {"projected": 0.5},
        "projected": {"width": 4},
    }
    config = fill_config(**options)
    first = trainee(config)
    figures = first.step(0, position_of_step(0, config.phase))
    assert {"projected", "projected_judge", "projected_accuracy"} <= figures.keys()
    weights = first.state()["projected"]["net"]
    torch.save(weights, tmp_path / "projected.pth")
    config = fill_config(**options | {"projected": {"width": 4, "initial": tmp_path / "projected.pth"}})
    ours, theirs = trainee(config), trainee(config)
    for key, tensor in weights.items():
        assert torch.equal(ours.state()["projected"]["net"][key], tensor)
    ours.step(0, position_of_step(0, config.phase))
    theirs.load(copy.deepcopy(ours.state()))
    position = position_of_step(1, config.phase)
    assert ours.step(1, position) == theirs.step(1, position)
