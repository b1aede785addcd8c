"""Runs that end themselves because they make no progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from training.fill_config import FillConfig
from training.fit import FitOutcome, fit
from training.loop.checkpoints import save_generator
from training.loop.runtime import start_runtime
from training.losses.vgg16 import VGG16Features
from training.nets.fillnet import checkpoint_state, make_net


def run(config: FillConfig) -> FitOutcome:
    with start_runtime(config, "cpu") as runtime:
        return fit(config, runtime)


def start(folder: Path, config: FillConfig) -> Path:
    net = make_net(config.generator, torch.Generator().manual_seed(0))
    return save_generator(folder, "start", checkpoint_state(net), half=False)


def test_a_run_with_a_reason_to_stop_is_saved_and_says_it(
    fill_config: Callable[..., FillConfig], tmp_path: Path
) -> None:
    config = fill_config(
        initial=start(tmp_path, fill_config()),
        judge=fill_config().judge.model_dump() | {"alone": 1},
        shares={"perceptual": 0.0, "patches": 0.5},
        patches={"widths": [4, 4], "min_accuracy": 1.0},
    )
    for _ in range(2):  # resumed, it ends again
        found = run(config)
        assert (found.finished, found.total) == (False, 4)
        assert "min_accuracy" in str(found.reason)
        assert found.generator.exists()
    assert found.step == 3
    steps = [json.loads(line)["step"] for line in (config.output / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]


def test_a_run_that_is_worse_than_its_start_ends_again_before_its_next_validation(
    fill_config: Callable[..., FillConfig], photographs: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    filters = VGG16Features().state_dict()
    save_file({key: value for key, value in filters.items() if "scale." not in key}, tmp_path / "vgg16.safetensors")
    config = fill_config(
        initial=start(tmp_path, fill_config()),
        features=tmp_path / "vgg16.safetensors",
        shares={"perceptual": 0.1},
        data=fill_config().data.model_dump() | {"validation": photographs, "validation_limit": 2},
        phase=[{"steps": 9, "batch": 2, "learning_rate": 1.0}],  # ruins the net
        ema_decay=0.0,
        sheet_every=3,
        stop_after=3,
    )
    for end in (3, 4):
        found = run(config)
        assert (found.step, found.finished) == (end, False)
        assert "validation_distance" in str(found.reason)
