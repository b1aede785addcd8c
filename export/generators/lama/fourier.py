"""The two-dimensional real Fourier transform as matrix products; the graph makes the matrices from its input's size.

No operator for this transform runs with free sizes on all of TensorRT 8.6, OpenVINO and ONNX Runtime. The matrices are
exact, cost a twentieth of the net at 512², and are made once for all blocks. Each axis is scaled by 1/√length inside
its own matrix: scaled at the end, sums of FP16 activations above 16 would overflow at 64×64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class FourierMatrices(NamedTuple):
    """The matrices for features of H×W; K = W/2 + 1 is the number of columns of the spectrum of real features."""

    columns_real: Tensor
    """W×K, a factor on the right."""
    columns_imaginary: Tensor
    """W×K."""
    rows: Tensor
    """2H×2H, a factor on the left of the real part stacked on the imaginary part."""
    rows_back: Tensor
    """2H×2H, the inverse of `rows`."""
    back_real: Tensor
    """K×W. The spectrum's other half mirrors this one, so columns count twice, except the first and, for an even W, the
    last: they count once, and their imaginary part is ignored (as in NumPy and torch on a CPU)."""
    back_imaginary: Tensor
    """K×W."""


def fourier_matrices(x: Tensor) -> FourierMatrices:
    """Make the matrices for features N×C×H×W, in their type."""
    height, width = x.shape[2], x.shape[3]
    columns = torch.arange(width, device=x.device).float()
    half = torch.arange(width // 2 + 1, device=x.device).float()
    angles = _angles(columns, half, width)
    real, imaginary = torch.cos(angles), torch.sin(angles)
    scale = _scale(width)
    twice = (1 + half.clamp(max=1) * (width - 2 * half).clamp(max=1)) * scale
    lines = torch.arange(height, device=x.device).float()
    turns = _angles(lines, lines, height)
    cos, sin = torch.cos(turns) * _scale(height), torch.sin(turns) * _scale(height)
    matrices = (
        real * scale,
        -imaginary * scale,
        torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)], 0),
        torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)], 0),
        real.t() * twice[:, None],
        -imaginary.t() * twice[:, None],
    )
    return FourierMatrices(*(matrix.to(x.dtype) for matrix in matrices))


def _angles(first: Tensor, second: Tensor, length: int) -> Tensor:
    """Return the angles 2π·a·b/length of all pairs, from a·b modulo the length; a·b is exact in FP32 up to 2²⁴."""
    product = first[:, None] * second[None]
    return (product - torch.floor(product / length) * length) * (2 * math.pi / length)


def _scale(length: int | Tensor) -> float | Tensor:
    """Return 1/√length; for the ONNX exporter a length is a tensor, for torch.export a symbol that must stay one."""
    return torch.rsqrt(length.float()) if isinstance(length, Tensor) else length**-0.5


def spectrum(x: Tensor, matrices: FourierMatrices) -> Tensor:
    """Transform real features N×C×H×W; the result N×2C×H×K alternates real and imaginary parts of channels."""
    n, channels, height, _ = x.shape
    parts = torch.cat([torch.matmul(x, matrices.columns_real), torch.matmul(x, matrices.columns_imaginary)], 2)
    return torch.matmul(matrices.rows, parts).reshape(n, 2 * channels, height, -1)


def from_spectrum(parts: Tensor, matrices: FourierMatrices) -> Tensor:
    """Invert `spectrum`; also accepts values that are not the spectrum of real features."""
    n, channels, height, columns = parts.shape
    stacked = torch.matmul(matrices.rows_back, parts.reshape(n, channels // 2, 2 * height, columns))
    real, imaginary = stacked[:, :, :height], stacked[:, :, height:]
    return torch.matmul(real, matrices.back_real) + torch.matmul(imaginary, matrices.back_imaginary)
