"""pix2pixHD's tensor contract: label and instance ids to the net's input channels.

One-hot labels and edges are computed from integers, before FP16: ids beyond 2048 would not be distinct in FP16.
A label outside the classes gets no channel, where upstream fails. Features are those of upstream's
`--use_encoded_image`: the mean of the encoder's output over each instance; or those of its `--cluster_path`: a cluster
of the training data's features for the class, here the same one for all instances of a class.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.pix2pixhd.encoder import instance_means
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from export.lowering import compute_type


def edge_map(instance: Tensor) -> Tensor:
    """Mark both sides of each border between instance ids with 1.0: N×1×H×W int32 to float32."""
    across = (instance[..., 1:] != instance[..., :-1]).float()
    down = (instance[..., 1:, :] != instance[..., :-1, :]).float()
    beside = torch.maximum(F.pad(across, (1, 0)), F.pad(across, (0, 1)))
    above = torch.maximum(F.pad(down, (0, 0, 1, 0)), F.pad(down, (0, 0, 0, 1)))
    return torch.maximum(beside, above)


def chosen_clusters(latent: Tensor, table: Tensor) -> Tensor:
    """Choose a cluster for each class, all with equal probability for standard normal numbers.

    Args:
        latent: N×L float32, a number for each class.
        table: L×K×F.

    Returns:
        N×L×F, in the type of the table.
    """
    count = table.shape[1]
    share = 0.5 + 0.5 * torch.erf(latent * math.sqrt(0.5))
    number = (share * count).floor().clamp(max=count - 1)
    is_chosen = number[..., None] == torch.arange(count, dtype=number.dtype, device=number.device)
    return (is_chosen[..., None].to(table.dtype) * table).sum(2)


class FromLabels(nn.Module):
    """The net behind the tensor contract, which turns label and instance ids into channels."""

    classes: Tensor

    def __init__(self, net: nn.Module, options: Pix2PixHDOptions) -> None:
        super().__init__()
        self.net, self.options = net, options
        self.register_buffer("classes", torch.arange(options.label_nc, dtype=torch.int32).view(1, -1, 1, 1))

    def forward(self, source: Tensor, *others: Tensor) -> Tensor:
        """Map label ids or a picture, then optional instance ids and the encoder's picture or latent, to the output."""
        kind, labelled, rest = compute_type(self.net), self.options.label_nc > 0, list(others)
        parts = [(source.int() == self.classes).to(kind) if labelled else (source * 2 - 1).to(kind)]
        instance = rest.pop(0) if self.options.takes_instances else source
        if self.options.edges:
            parts.append(edge_map(instance).to(kind))
        if self.options.has_encoder:
            seen = self.net.get_submodule("encoder")((rest.pop() * 2 - 1).to(kind))
            whose = instance if self.options.features_of == "instance" else source
            parts.append(instance_means(seen.float(), whose).to(kind))
        if self.options.clusters:
            parts.append(self._styles(rest.pop(), parts[0]))
        return cast("Tensor", self.net(torch.cat(parts, 1)).float() * 0.5 + 0.5)

    def _styles(self, latent: Tensor, planes: Tensor) -> Tensor:
        """Spread each class's chosen features over its pixels: N×L and one-hot N×L×H×W to N×F×H×W."""
        styles = chosen_clusters(latent, self.net.get_buffer("clusters")).transpose(1, 2).to(planes.dtype)
        return (styles @ planes.flatten(2)).view(planes.shape[0], styles.shape[1], *planes.shape[2:])
