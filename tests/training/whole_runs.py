"""Complete training runs, in this process or in others, and the files that they leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor

from training.commands.fit import fit as fit_command
from training.config import AnyConfig, load_config
from training.fit import FitOutcome, fit
from training.loop.journal import Journal
from training.loop.runtime import start_runtime
from training.losses.vgg16 import VGG16Features

STEPS = 80
PHASES = [
    {"steps": STEPS // 2, "batch": 2, "learning_rate": 2e-3, "warm_up": 2},
    {"steps": STEPS // 2, "batch": 3, "learning_rate": 1e-3},
]


def run(
    config: AnyConfig, stop_after_s: float | None = None, clock: Callable[[], float] = time.monotonic
) -> FitOutcome:
    with start_runtime(config, "cpu") as runtime:
        return fit(config, runtime, stop_after_s, clock)


def weights(config: AnyConfig) -> dict[str, Tensor]:
    """Return every value of a checkpoint by its path."""
    saved = torch.load(config.output / "checkpoint.pt", weights_only=True)

    def flat(value: Any, where: str) -> Iterator[tuple[str, Tensor]]:
        if isinstance(value, Tensor):
            yield where, value
        elif isinstance(value, dict):
            for key, inner in value.items():
                yield from flat(inner, f"{where}/{key}")

    return dict(flat(saved["trainee"], ""))


def assert_same(first: AnyConfig, second: AnyConfig) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    other = [key for key in ours if not torch.equal(ours[key], theirs[key])]
    assert other == [], other


def save_untrained_vgg16(path: Path) -> Path:
    """Save VGG16 with the random weights of a new net as the file of the option `features`."""
    state = VGG16Features().state_dict().items()
    save_file({key: value for key, value in state if key.startswith("features.")}, path)
    return path


def fit_until_killed(config: Path) -> None:
    """Run the command; before its last step it waits ten minutes for its end, however late the signal comes."""
    last = sum(phase.steps for phase in load_config(config).phase)
    record = Journal.record

    def record_and_wait(journal: Journal, step: int, figures: Mapping[str, float]) -> None:
        record(journal, step, figures)
        if step == last - 1:
            time.sleep(600)

    with patch.object(Journal, "record", record_and_wait):
        fit_command(config)


def fit_as_one_of(processes: int, rank: int, port: int, config: Path) -> None:
    """Run the command as one of several processes, with torchrun's environment; they connect by a store on the port."""
    place = {"WORLD_SIZE": str(processes), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ.update(place | meeting)
    fit_command(config)
