"""The losses of partial-convolution nets, safe in half precision.

Liu et al., "Image Inpainting for Irregular Holes Using Partial Convolutions", ECCV 2018, section 3.4. Sums are
computed in FP32, over each sample first, so that the mean over samples does not depend on how they are spread over
GPUs.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

_MIN_MSE = 1e-5
"""Mean squared error at 50 dB, below which `log_mse` hardly falls."""
_GRID = 8
"""Period in pixels of the upsampling in the decoder's last three layers; longer periods hardly matter."""
_MIN_DIFFERENCE = 1 / 255
"""Smallest mean difference of neighbours in which a grid is visible."""
_MIN_LENGTH = 0.1
"""Length below which feature vectors are not normalised: ordinary ones are far longer, so these are noise."""


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average N×C×H×W values where the N×1×H×W mask is 1 into an FP32 scalar; an empty mask counts as 0.

    In FP16 the naive sum(v·m)/(sum(m) + 1e-8) is inf/inf above 65504 pixels and 0/0 on an empty mask.
    """
    return _sample_means(values, mask).mean()


def _sample_means(values: Tensor, mask: Tensor) -> Tensor:
    values, mask = values.float(), mask.float()
    count = mask.sum((1, 2, 3)) * values.shape[1]
    return (values * mask).sum((1, 2, 3)) / count.clamp(min=1)


def log_mse(output: Tensor, image: Tensor, mask: Tensor) -> Tensor:
    """Average ln(mean squared difference inside the mask) over samples: the PSNR up to a factor of -10/ln 10."""
    squares = (output.float() - image.float()).square()
    return (_sample_means(squares, mask) + _MIN_MSE).log().mean()


def gram(features: Tensor) -> Tensor:
    """Compute the N×C×C Gram matrices of N×C×H×W features, divided by c·h·w, in FP32.

    It is one batched product whose factors are divided by √(h·w) and whose result is divided by c: 1/(c·h·w) as an FP16
    number would underflow below 2⁻²⁴, and undivided sums would exceed 65504.
    """
    n, c, h, w = features.shape
    flat = features.reshape(n, c, h * w) * (h * w) ** -0.5
    return torch.bmm(flat, flat.transpose(1, 2)).float() / c


def perceptual_distance(found: list[Tensor], wanted: list[Tensor]) -> Tensor:
    """Sum the mean |difference| of features over layers."""
    return torch.stack([(f.float() - w.float()).abs().mean() for f, w in zip(found, wanted, strict=True)]).sum()


def normalised_feature_distance(found: list[Tensor], wanted: list[Tensor]) -> Tensor:
    """Sum over layers the mean squared distance of features normalised over their channels, each in [0, 2].

    As LPIPS (Zhang et al., CVPR 2018) without its learnt weights. Faint texture counts as much as strong edges.
    """
    return torch.stack([_direction_distance(f, w) for f, w in zip(found, wanted, strict=True)]).sum()


def _direction_distance(found: Tensor, wanted: Tensor) -> Tensor:
    return (_normalise_channels(found) - _normalise_channels(wanted)).square().sum(1).mean()


def _normalise_channels(features: Tensor) -> Tensor:
    """Normalise in FP32, because squares of features exceed FP16; the gradient is finite where all are 0."""
    features = features.float()
    return features * (features.square().sum(1, keepdim=True) + _MIN_LENGTH**2).rsqrt()


def learned_distance(lpips: nn.Module, composite: Tensor, image: Tensor) -> Tensor:
    """Average the LPIPS of whole pictures in [0, 1] over samples, in FP32 whatever the net computes in."""
    with torch.autocast(composite.device.type, enabled=False):
        return cast("Tensor", lpips(composite.float() * 2 - 1, image.float() * 2 - 1)).mean()


def style_distance(found: list[Tensor], wanted: list[Tensor]) -> Tensor:
    """Sum the mean |difference| of Gram matrices over layers."""
    return torch.stack([(gram(f) - gram(w)).abs().mean() for f, w in zip(found, wanted, strict=True)]).sum()


def total_variation(image: Tensor, hole: Tensor) -> Tensor:
    """Average |difference| of neighbours of which at least one lies in the hole, vertical plus horizontal."""
    across = (image[..., 1:] - image[..., :-1]).abs()
    down = (image[..., 1:, :] - image[..., :-1, :]).abs()
    beside = torch.maximum(hole[..., 1:], hole[..., :-1])
    above = torch.maximum(hole[..., 1:, :], hole[..., :-1, :])
    return masked_mean(across, beside) + masked_mean(down, above)


def grid_unevenness(image: Tensor, hole: Tensor) -> Tensor:
    """Measure how differences of neighbours in the hole vary with the position modulo 8 (checkerboard artefacts).

    In photographs the mean |difference| is the same in every column modulo 8, because crops are cut anywhere; a
    decoder that upsamples by repeating pixels favours some columns. The mean over samples of the squared deviations
    of the 8 means from the overall mean: 0 without a grid, 2 if all differences lay in every second column and row.
    """
    return _row_unevenness(image, hole) + _row_unevenness(image.transpose(2, 3), hole.transpose(2, 3))


def _row_unevenness(image: Tensor, hole: Tensor) -> Tensor:
    """Measure along the rows of N×C×H×W, with W cropped to a multiple of 8."""
    width = (image.shape[-1] - 1) // _GRID * _GRID
    differences = (image[..., 1 : width + 1] - image[..., :width]).float().abs().mean(1, keepdim=True)
    inside = (hole[..., 1 : width + 1] * hole[..., :width]).float()
    columns = (*inside.shape[:3], width // _GRID, _GRID)
    total, count = (values.reshape(columns).sum((1, 2, 3)) for values in (differences * inside, inside))
    middle = total.sum(1, keepdim=True) / count.sum(1, keepdim=True).clamp(min=1)
    deviation = (total / count.clamp(min=1) - middle) / (middle + _MIN_DIFFERENCE)
    return (deviation * (count > 0)).square().mean()
