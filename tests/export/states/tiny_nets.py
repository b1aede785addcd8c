"""A tiny net of every family whose files are one state dict, and what such a file comes back as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from export.checkpoint import load_strictly, read_checkpoint
from export.generators import FAMILIES
from export.generators.family import GeneratorOptions, Interface
from export.parity import torch_backend
from export.parity_inputs import find_pictures, parity_inputs
from export.recognition import RecognisedNet, recognise

_PICTURES = Path(__file__).resolve().parents[2] / "data"
_GIVEN: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "pconv": ("pconv", {"levels": 3, "width": 4}),
        "pconv_nvidia": ("pconv_nvidia", {"width": 2}),
        "unet": ("pix2pix", {"net": "unet_128", "ngf": 2}),
        "resnet": ("pix2pix", {"net": "resnet_6blocks", "norm": "instance", "ngf": 2}),
        "global": ("pix2pixhd", {"label_nc": 5, "ngf": 2, "downsamplings": 2, "blocks": 2}),
        "local": ("pix2pixhd", {"net": "local", "label_nc": 5, "ngf": 2, "downsamplings": 2, "blocks": 2}),
        "pgn": ("pgn", {"stages": 2, "width": 2}),
        "dcgan": ("dcgan", {"nz": 5, "ngf": 3}),
        "fillnet": ("fillnet", {"widths": "6,5,4", "encoder": "1,0,1", "decoder": "0,2,1"}),
        "migan": ("migan", {"widths": "4,6,8"}),
        "lama": ("lama", {"ngf": 8, "downsamplings": 2, "blocks": 3}),
        "deepfillv2": ("deepfillv2", {"cnum": 4}),
        "deepfillv2_tf": ("deepfillv2", {"layout": "networks_tf", "cnum": 4}),
    }
)
TINY: Mapping[str, tuple[str, GeneratorOptions]] = MappingProxyType(
    {name: (family, FAMILIES[family].options.model_validate(given)) for name, (family, given) in _GIVEN.items()}
)
"""Name of a net to its family's name and its options."""


def made(name: str, make_net: Callable[..., nn.Module]) -> nn.Module:
    """Make a net of `TINY` with random weights by the fixture `make_net`."""
    family, options = TINY[name]
    net = make_net(FAMILIES[family], options)
    for key, tensor in net.state_dict().items():
        if key.endswith("fuse_weight"):
            tensor.copy_(torch.eye(3))  # a constant of DeepFillv2
    return net


def outputs(name: str, net: nn.Module) -> Tensor:
    """Return what a net of `TINY` makes of a picture, behind the tensor contract."""
    family, options = FAMILIES[TINY[name][0]], TINY[name][1]
    interface: Interface = family.interface(options)
    sample = next(parity_inputs(interface, find_pictures(_PICTURES), np.random.default_rng(3)))
    return torch.from_numpy(torch_backend(family.wrap(net, options).eval())(sample.feed))


def reread(*paths: Path) -> tuple[RecognisedNet, nn.Module]:
    """Read files as `retouch export` does; returns what was recognised, and the loaded net."""
    found = recognise([part for path in paths for part in read_checkpoint(path).parts], None, {})
    with torch.device("meta"):
        net = found.family.build(found.options)
    load_strictly(net, found.family.translate(found.state, found.options).state)
    return found, net
