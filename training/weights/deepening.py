"""Starts a deeper FillNet with the weights of a shallower one: added layers are residual, and begin almost at zero."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import torch
from torch import nn

from export.generators.family import State
from export.generators.fillnet.attention import Attention
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.net import Residual
from export.generators.fillnet.options import FillNetOptions, parse_numbers
from training.errors import CheckpointMismatch
from training.nets.fillnet import NormedConv, checkpoint_state, make_net
from training.weights.initial import read_parts

_NEW_BRANCH = 0.02
"""Gain of the last convolution of an added layer. With 0 the filters could not be learnt, because the public layout
stores only the product of gain and filter."""
_LAYER = re.compile(r"(encoder|decoder)\.(\d+)\.(\d+)\.(.+)")


def deepen_file(path: Path, options: FillNetOptions, seed: int) -> State:
    """Return the state dict, in the public layout, of a net with `options` that computes nearly what the file's does.

    Raises:
        CheckpointMismatch: the file cannot be read, has no FillNet, or its net does not fit into one with `options`.
    """
    family = FillNet()
    for part in read_parts(path):
        if (found := family.recognise(part.state)) is not None:
            try:
                return deepen(part.state, found, options, seed)
            except CheckpointMismatch as error:
                raise CheckpointMismatch(f"{path}: {error}") from error
    raise CheckpointMismatch(f"{path}: holds no FillNet; give the .pth of one, such as generator.pth of a run")


def deepen(state: State, found: FillNetOptions, options: FillNetOptions, seed: int) -> State:
    """Copy the tensors of a net with options `found` into one with `options`.

    Added residual blocks come after the present ones, added attention in the decoder before them; both have random
    filters from `seed`, scaled so that they hardly change the fill.

    Raises:
        CheckpointMismatch: widths differ, or a level would lose layers.
    """
    _refuse_smaller(found, options)
    net = make_net(options, torch.Generator().manual_seed(seed))
    for module in net.modules():
        if isinstance(module, Residual):
            nn.init.constant_(cast("NormedConv", module.second).gain, _NEW_BRANCH)
        elif isinstance(module, Attention):
            nn.init.constant_(cast("NormedConv", module.out).gain, _NEW_BRANCH)
    deeper = checkpoint_state(net)
    for name, tensor in state.items():
        deeper[_name_in_deeper_net(name, found, options)] = tensor.float()
    return deeper


def _refuse_smaller(found: FillNetOptions, options: FillNetOptions) -> None:
    if found.channels != options.channels:
        raise CheckpointMismatch(f"has widths {found.widths}, the config {options.widths}; give the same ones")
    for name in ("encoder", "decoder"):
        before, after = (parse_numbers(getattr(each, name)) for each in (found, options))
        if any(old > new for old, new in zip(before, after, strict=True)):
            raise CheckpointMismatch(
                f"{name} has {getattr(found, name)} residual blocks, the config {getattr(options, name)}; give at "
                "least as many for each level"
            )
    if any(old > new for old, new in zip(found.attention, options.attention, strict=True)):
        raise CheckpointMismatch(f"context is {found.context}, in the config {options.context}; give at least as much")


def _name_in_deeper_net(name: str, found: FillNetOptions, options: FillNetOptions) -> str:
    """Return the name in the deeper net of a tensor of the shallower one.

    In the encoder a level's blocks come before its attention, in the decoder after it.
    """
    match = _LAYER.fullmatch(name)
    if match is None:
        return name
    side, level, number, rest = match[1], int(match[2]), int(match[3]), match[4]
    if side == "encoder":
        old, new = (parse_numbers(each.encoder)[level] for each in (found, options))
    else:
        old, new = ((each.attention[level] + 1) // 2 for each in (found, options))
    return f"{side}.{level}.{number if number < old else number - old + new}.{rest}"
