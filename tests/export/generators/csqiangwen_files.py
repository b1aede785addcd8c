"""Checkpoints in the form of csqiangwen's training, made from our nets."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from export.generators.deepfillv2.generator import DeepFillV2
from export.generators.deepfillv2.net import DeepFillV2Options, layers


def as_csqiangwen(net: nn.Module) -> dict[str, Tensor]:
    """Return a net's state dict as csqiangwen's training writes it: convolution and gate apart, upsampling layers with
    spectral norms.
    """
    state = {}
    for layer in layers():
        name = layer.name("csqiangwen")
        conv = net.get_submodule(f"{name}.conv")
        assert isinstance(conv, nn.Conv2d)
        assert conv.bias is not None
        for part, weight, bias in zip(
            ("conv2d", "mask_conv2d"), *(t.chunk(2) for t in (conv.weight, conv.bias)), strict=True
        ):
            if layer.kind != "doubles":
                state.update({f"{name}.{part}.weight": weight, f"{name}.{part}.bias": bias})
                continue
            u, _, v = torch.linalg.svd(weight.flatten(1), full_matrices=False)
            named = {"bias": bias, "weight_u": u[:, 0], "weight_v": v[0], "weight_bar": weight}
            state.update({f"{name}.gated_conv2d.{part}.module.{key}": tensor for key, tensor in named.items()})
    return state


def seeded_state(options: DeepFillV2Options) -> dict[str, Tensor]:
    """Draw the weights with which csqiangwen's public code was run; names and shapes alone determine them."""
    rng, state = np.random.default_rng(20), {}
    for key, tensor in sorted(as_csqiangwen(DeepFillV2().build(options)).items()):
        drawn = rng.standard_normal(tensor.shape)
        scale = 2 / np.sqrt(np.prod(tensor.shape[1:])) if tensor.ndim > 1 else 0.2 if key.endswith("bias") else 1
        state[key] = torch.from_numpy((drawn * scale).astype(np.float32))
    return state
