"""The views of a picture that nets with strides are shown in place of it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor


def half_size_and_crop(picture: Tensor, top: int, left: int) -> Tensor:
    """Return the pictures at half size, and crops of half their side: 2N×C×H/2×W/2."""
    height, width = picture.shape[2] // 2, picture.shape[3] // 2
    return torch.cat([F.avg_pool2d(picture, 2), picture[..., top : top + height, left : left + width]])


def roll_picture(picture: Tensor, down: int, right: int) -> Tensor:
    """Roll the picture with wrap-around, so that nets with strides see it on another grid each time."""
    picture = torch.cat([picture[:, :, -down:], picture[:, :, :-down]], 2) if down else picture
    return torch.cat([picture[..., -right:], picture[..., :-right]], 3) if right else picture
