"""Attention between all positions of a level, as matrix products, which every engine supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.fillnet.options import HEADS

MakeConv = Callable[..., nn.Module]
_SLOPE = 0.2
_SHARPNESS = 10.0
_MIN_LENGTH = 1e-3


def activation(x: Tensor) -> Tensor:
    """Apply the net's only nonlinearity."""
    return F.leaky_relu(x, _SLOPE)


class Attention(nn.Module):
    """Self-attention over all positions, with a residual: x + conv(attention(x)).

    Scores are cosines times 10 times a learnt temperature, so FP16 could hold them whatever the weights. Scores and
    softmax are FP32 in a graph, whatever the convolutions are.
    """

    def __init__(self, width: int, conv: MakeConv, cell: int = 1) -> None:
        """Make the layer; keys and values are computed from means of `cell` by `cell` positions."""
        super().__init__()
        self.cell, self.share = cell, width // HEADS
        self.query, self.key, self.value = conv(width, width, 1), conv(width, width, 1), conv(width, width, 1)
        self.temperature = nn.Parameter(torch.ones(HEADS, 1, 1))
        self.out = conv(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape, for any height and width."""
        active, heads = activation(x), (x.shape[0], HEADS, self.share, -1)
        pooled = F.avg_pool2d(active, self.cell) if self.cell > 1 else active
        parts = (self.query(active), self.key(pooled), self.value(pooled))
        queries, keys, values = (
            part.float().reshape(heads).transpose(2, 3) for part in parts
        )  # N×heads×positions×channels
        scores = (_unit(queries) * self.temperature) @ (_unit(keys) * _SHARPNESS).transpose(2, 3)
        taken = (torch.softmax(scores, -1) @ values).transpose(2, 3).reshape(x.shape)
        return cast("Tensor", x + self.out(taken.to(x.dtype)))


def _unit(vectors: Tensor) -> Tensor:
    """Scale vectors along the last axis to length 1."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / length.clamp(min=_MIN_LENGTH)
