"""Measures the device's limits: bytes per second by copying, FLOP per second by matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from training.config import Precision
from training.loop.runtime import synchronise

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_REPEATS = 10


@dataclass(frozen=True)
class Ceilings:
    """The measured limits of a device: the ceilings of a roofline plot."""

    bytes_per_s: float
    flop_per_s: dict[str, float]
    """FLOP/s of matrix products, by precision."""


def measure_ceilings(device: torch.device, precisions: tuple[Precision, ...]) -> Ceilings:
    """Measure the best of ten copies of a buffer larger than any cache, and of ten square products per precision.

    A copy of n bytes moves 2 n: it reads and writes. A product of side s takes 2 s³ operations.
    """
    large = device.type == "cuda"
    source = torch.empty(2**32 if large else 2**26, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copying = _fastest_run_s(lambda: target.copy_(source), device)
    side = 8192 if large else 512
    return Ceilings(2 * source.numel() / copying, {name: _measure_product(name, side, device) for name in precisions})


def _measure_product(precision: Precision, side: int, device: torch.device) -> float:
    one = torch.randn(side, side, device=device, dtype=_DTYPES[precision])
    with _tf32_setting(allowed=precision == "tf32"):
        return 2 * side**3 / _fastest_run_s(lambda: one @ one, device)


@contextmanager
def _tf32_setting(*, allowed: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _fastest_run_s(act: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of the fastest of several runs, after a warm-up run."""
    times = []
    for _ in range(1 + _REPEATS):
        synchronise(device)
        started = time.perf_counter()
        act()
        synchronise(device)
        times.append(time.perf_counter() - started)
    return min(times[1:])
