"""Starts a net with the weights of a file instead of random ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from export.checkpoint import read_checkpoint, refuse_unusable
from export.errors import ExportError
from export.generators.family import State
from export.states.finding import StateDict
from training.errors import CheckpointMismatch


def load_initial(net: nn.Module, path: Path, translate: Callable[[State], State]) -> None:
    """Load the first state dict of a checkpoint that fits the net after `translate`.

    Raises:
        CheckpointMismatch: the file cannot be read, no state dict in it fits the net, or the fitting one has values
            that are not real or not finite.
    """
    parts = read_parts(path)
    wanted = {key: tensor.shape for key, tensor in net.state_dict().items() if not key.startswith("scale.")}
    for part in parts:
        state = translate(part.state)
        if {key: tensor.shape for key, tensor in state.items()} == wanted:
            try:
                refuse_unusable(part)
            except ExportError as error:
                raise CheckpointMismatch(f"{path}: {error}") from error
            net.load_state_dict(state, strict=False)
            return
    raise CheckpointMismatch(f"{path}: holds no weights that fit the config's net; compare its levels and widths")


def read_parts(path: Path) -> tuple[StateDict, ...]:
    """Read every state dict of a checkpoint.

    Raises:
        CheckpointMismatch: the file cannot be read, or holds no state dict.
    """
    try:
        return read_checkpoint(path).parts
    except ExportError as error:
        raise CheckpointMismatch(str(error)) from error


def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Initialise as upstream: convolutions from N(0, 0.02), norm scales from N(1, 0.02), biases 0."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d)):
            mean = 1.0 if isinstance(module, nn.BatchNorm2d) else 0.0
            nn.init.normal_(module.weight, mean, 0.02, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
