"""Runs that end themselves, as they gain nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch

from training.fill_config import FillConfig
from training.fit import FitOutcome, fit
from training.loop.checkpoints import save_generator
from training.loop.runtime import start_runtime
from training.nets.fillnet import checkpoint_state, make_net


def run(config: FillConfig) -> FitOutcome:
    with start_runtime(config, "cpu") as runtime:
        return fit(config, runtime)


def test_a_run_with_a_reason_to_stop_is_saved_and_says_it(
    fill_config: Callable[..., FillConfig], tmp_path: Path
) -> None:
    net = make_net(fill_config().generator, torch.Generator().manual_seed(0))
    config = fill_config(
        initial=save_generator(tmp_path, "start", checkpoint_state(net), half=False),
        judge=fill_config().judge.model_dump() | {"alone": 1},
        shares={"perceptual": 0.0, "patches": 0.5},
        patches={"widths": [4, 4], "least_told": 1.0},
    )
    for _ in range(2):  # taken up again it ends again
        found = run(config)
        assert (found.finished, found.total) == (False, 4)
        assert "least_told" in str(found.reason)
        assert found.generator.exists()
    assert found.step == 3
    steps = [json.loads(line)["step"] for line in (config.output / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]
