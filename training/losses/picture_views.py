"""The views of a picture that losses see: rolled, at half size, and cut out."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor


class ViewIndices(NamedTuple):
    """The rows and columns that a step's views take from pictures of S×S, int64 on their device."""

    rolled_rows: Tensor
    """S: the picture's rows, rolled with wrap-around."""
    rolled_columns: Tensor
    cut_rows: Tensor
    """S/2: the rows of a cut-out at full size."""
    cut_columns: Tensor


def view_indices(side: int, roll: tuple[int, int], cut: tuple[int, int], device: torch.device) -> ViewIndices:
    """Return the indices of a roll (pixels down, right) and a cut-out (first row, column); one copy to the device."""
    whole, half = torch.arange(side), torch.arange(side // 2)
    indices = torch.cat([*((whole - shift) % side for shift in roll), *(half + first for first in cut)])
    return ViewIndices(*torch.split(indices.to(device, non_blocking=True), [side, side, side // 2, side // 2]))


def half_size_and_cut(picture: Tensor, views: ViewIndices) -> Tensor:
    """Return the pictures at half size, and cut-outs of half their side: 2N×C×S/2×S/2."""
    cut = picture.index_select(2, views.cut_rows).index_select(3, views.cut_columns)
    return torch.cat([F.avg_pool2d(picture, 2), cut])


def roll_picture(picture: Tensor, views: ViewIndices) -> Tensor:
    """Roll the pictures with wrap-around, so that strided layers sample another grid at each step."""
    return picture.index_select(2, views.rolled_rows).index_select(3, views.rolled_columns)
