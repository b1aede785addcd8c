"""Sample sheets and validation figures on held-out pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from training.data.device_cache import PictureCache

_AT_ONCE = 16
_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2


def arrange_sheet(columns: Sequence[Tensor]) -> Tensor:
    """Arrange columns of N×3×H×W pictures into one 3×(N·H)×(columns·W) sheet in [0, 1]."""
    sheet = torch.cat(list(columns), 3).clamp(0, 1)
    return torch.cat(list(sheet.unbind(0)), 1)


def write_sheet(sheet: Tensor, path: Path) -> None:
    """Write a 3×H×W picture in [0, 1] as PNG; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rgb = (sheet * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    encoded = cv2.imencode(".png", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))[1]
    path.write_bytes(encoded.tobytes())


def validation_figures(
    held_out: PictureCache | None, made: Callable[[PictureCache, int, int], tuple[Tensor, ...]]
) -> dict[str, float]:
    """Compute mean PSNR in dB and mean SSIM on held-out pictures; empty without any.

    Args:
        held_out: the pictures.
        made: maps the cache, `first` and `last` to N×3×H×W results and truths in [0, 1] of pictures first … last - 1;
            further tensors are ignored.
    """
    if held_out is None:
        return {}
    starts = range(0, held_out.count, _AT_ONCE)
    batches = [made(held_out, first, min(first + _AT_ONCE, held_out.count)) for first in starts]
    pairs = [(found, wanted) for found, wanted, *_ in batches]
    return {"validation_psnr_db": mean_psnr_db(pairs), "validation_ssim": mean_ssim(pairs)}


def mean_psnr_db(batches: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Compute the mean PSNR (peak 1.0) over N×C×H×W pictures and their truths."""
    errors = torch.cat([(found - wanted).square().mean((1, 2, 3)) for found, wanted in batches])
    return float((-10 * errors.clamp(min=1e-10).log10()).mean())


def mean_ssim(batches: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Compute the mean SSIM of N×C×H×W pictures in [0, 1] and their truths, as `evaluate` does, but before rounding.

    Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004.
    """
    return float(torch.cat([_ssim(found.double(), wanted.double()) for found, wanted in batches]).mean())


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    mean_x, mean_y = _blur(x), _blur(y)
    var_x, var_y = _blur(x * x) - mean_x.square(), _blur(y * y) - mean_y.square()
    covariance = _blur(x * y) - mean_x * mean_y
    similar = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    return (similar / ((mean_x.square() + mean_y.square() + _C1) * (var_x + var_y + _C2))).mean((1, 2, 3))


def _blur(values: Tensor) -> Tensor:
    """Blur with a Gaussian window of 11 pixels, or the picture's side if smaller, at positions where it fits inside."""
    side = min(_WINDOW, *values.shape[-2:])
    places = torch.arange(side, device=values.device, dtype=values.dtype) - (side - 1) / 2
    weights = torch.exp(-places.square() / (2 * _SIGMA**2))
    row = (weights / weights.sum()).expand(values.shape[1], 1, 1, -1)
    return F.conv2d(F.conv2d(values, row, groups=values.shape[1]), row.mT, groups=values.shape[1])
