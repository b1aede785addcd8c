"""Recognises the options of a pix2pixHD generator and its encoder from keys and shapes."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from export.generators.family import State
from export.generators.pix2pixhd.encoder import EncoderShape


def part_of(state: State, prefix: str) -> State:
    """Return the entries whose keys begin with `prefix`, without the prefix."""
    return {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}


def block_indices(state: State, model: str) -> list[int]:
    """Return the positions of the residual blocks in a sequence."""
    pattern = re.compile(rf"{model}\.(\d+)\.conv_block\.1\.weight")
    return sorted(int(found[1]) for key in state if (found := pattern.fullmatch(key)))


def input_options(channels: int) -> dict[str, object]:
    """Return the input options: up to three channels are a picture, a fourth its edges; more are classes and edges."""
    if channels <= 3:
        return {"label_nc": 0, "image_channels": channels, "edges": False}
    return {"label_nc": 0, "image_channels": 3} if channels == 4 else {"label_nc": channels - 1}


def global_options(state: State, last: int) -> dict[str, object] | None:
    """Return the options of a global net whose last convolution is layer `last`; None if it is not one."""
    conv = state.get(f"model.{last}.weight")
    if conv is None or conv.shape[0] > 3:
        return None
    return {"net": "global", "ngf": conv.shape[1], "out_channels": conv.shape[0]}


def local_options(state: State) -> dict[str, object] | None:
    """Return the options of a net with enhancers; None if the last convolution is missing."""
    enhancers = sum(f"model{n}_1.1.weight" in state for n in range(1, 4))
    blocks = len(block_indices(state, f"model{enhancers}_2"))
    conv = state.get(f"model{enhancers}_2.{blocks + 4}.weight")
    if conv is None or conv.shape[0] > 3:
        return None
    sizes = {"enhancers": enhancers, "local_blocks": blocks}
    return {"net": "local", "ngf": conv.shape[1], "out_channels": conv.shape[0], **sizes}


def recognise_encoder(state: State) -> EncoderShape | None:
    """Return the arguments of the encoder with these keys; None without one; old files fit no public code."""
    first = state.get("model.1.weight")
    if first is None or first.shape[2:] != (7, 7) or any("conv_block" in key for key in state):
        return None
    convolutions = sum(tensor.ndim == 4 for tensor in state.values())
    downsamplings = (convolutions - 2) // 2
    last = state.get(f"model.{6 * downsamplings + 5}.weight")
    if downsamplings < 1 or convolutions % 2 or last is None or last.shape[1] != first.shape[0]:
        return None
    return EncoderShape(int(first.shape[1]), int(last.shape[0]), int(first.shape[0]), downsamplings)


def encoder_options(encoder: EncoderShape | None) -> dict[str, Any]:
    """Return the options that create such an encoder."""
    names = ("features", "encoder_width", "encoder_downsamplings")
    return {} if encoder is None else dict(zip(names, encoder[1:], strict=True))


def cluster_options(clusters: Tensor | None) -> dict[str, Any]:
    """Return the options of a file with clusters of features, L×K×F."""
    return {} if clusters is None else {"clusters": int(clusters.shape[1]), "features": int(clusters.shape[2])}
