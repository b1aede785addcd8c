"""Measures the largest activation of a net: FP16 holds at most 65504; beyond that pictures turn black."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

FP16_MAX = 65504.0
MARGIN = 4
"""Safety factor: pictures other than the few measured may cause activations up to this many times larger."""


class _LargestFeature(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no annotations
    """Keeps the largest absolute value of all N×C×H×W tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.value = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation unchanged, and record the largest absolute value of its result."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.ndim == 4 and result.is_floating_point() and result.numel():
            self.value = max(self.value, float(torch.nan_to_num(result, nan=torch.inf).abs().max()))
        return result


def largest_activation(lowered: nn.Module, feeds: Iterable[Mapping[str, NDArray[Any]]]) -> float:
    """Return the largest absolute value between the layers of a lowered FP32 net on these inputs; inf for NaN."""
    watched = _LargestFeature()
    with torch.no_grad():
        for feed in feeds:
            tensors = [torch.from_numpy(array) for array in feed.values()]
            with watched:
                lowered(*tensors)
    return watched.value


def fits_fp16(largest: float) -> bool:
    """Return whether FP16 holds activations of this size with a margin."""
    return largest * MARGIN <= FP16_MAX
