"""Sample sheets and validation figures on held-out pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import torch
from torch import Tensor

from training.data.device_cache import PictureCache

_AT_ONCE = 16


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
    """Compute the mean PSNR between the two results of `made` for the pictures first … last - 1 of the cache."""
    if held_out is None:
        return {}
    starts = range(0, held_out.count, _AT_ONCE)
    batches = [made(held_out, first, min(first + _AT_ONCE, held_out.count)) for first in starts]
    return {"validation_psnr_db": mean_psnr_db([(found, wanted) for found, wanted, *_ in batches])}


def mean_psnr_db(batches: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Compute the mean PSNR (peak 1.0) over N×C×H×W pictures and their truths."""
    errors = torch.cat([(found - wanted).square().mean((1, 2, 3)) for found, wanted in batches])
    return float((-10 * errors.clamp(min=1e-10).log10()).mean())
