"""Interpolation between the weights of two generators (Wang et al., "ESRGAN", ECCV workshops 2018, section 3.4)."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from export.generators.family import State
from training.errors import CheckpointMismatch
from training.loop.checkpoints import save_atomically


def blend_files(first: Path, second: Path, share: float, output: Path) -> None:
    """Interpolate the tensors by `share` towards the second file, in its types; counters are the second's.

    Raises:
        CheckpointMismatch: a file cannot be read, or the two are of different nets.
    """
    ours, theirs = _read_state(first), _read_state(second)
    if {key: tensor.shape for key, tensor in ours.items()} != {key: tensor.shape for key, tensor in theirs.items()}:
        raise CheckpointMismatch(f"{first} and {second} are not of one net; take both from the same run")
    save_atomically({key: _interpolate_tensor(ours[key], theirs[key], share) for key in theirs}, output)


def _interpolate_tensor(first: Tensor, second: Tensor, share: float) -> Tensor:
    if not second.is_floating_point():
        return second
    return torch.lerp(first.double(), second.double(), share).to(second.dtype)


def _read_state(path: Path) -> State:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {key: state[key].detach() for key in state}
    except (pickle.UnpicklingError, RuntimeError, AttributeError, TypeError, EOFError, OSError) as error:
        raise CheckpointMismatch(f"{path}: not a generator's state dict, or damaged") from error
