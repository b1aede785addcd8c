"""Processes, devices and precisions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from training.config import PConvConfig
from training.errors import ConfigInvalid
from training.runtime import Runtime, started

CPU = torch.device("cpu")


def test_a_batch_is_split_evenly_and_wholly() -> None:
    shares = [Runtime(CPU, "fp32", rank=rank, world=4).share(12) for rank in range(4)]
    assert shares == [(0, 3), (3, 6), (6, 9), (9, 12)]
    with pytest.raises(ConfigInvalid, match="multiple"):
        Runtime(CPU, "fp32", world=4).share(10)


def test_alone_nothing_is_exchanged() -> None:
    runtime, tensor = Runtime(CPU, "fp32"), torch.tensor([3.0])
    runtime.average([tensor])
    runtime.adopt_buffers(torch.nn.BatchNorm2d(2))
    assert tensor == 3
    assert runtime.any(True)
    assert not runtime.any(False)
    assert runtime.leads


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_precision_decides_what_products_compute_in(precision: str, kind: torch.dtype) -> None:
    with Runtime(CPU, precision).autocast():  # type: ignore[arg-type]
        assert (torch.rand(2, 2) @ torch.rand(2, 2)).dtype == kind


def test_weights_lie_in_the_order_that_the_config_asks_for(partial_config: Callable[..., PConvConfig]) -> None:
    for wanted in (True, False):
        net = torch.nn.Conv2d(4, 4, 3)
        with started(partial_config(channels_last=wanted), "cpu") as runtime:
            runtime.hold(net)
        assert net.weight.is_contiguous(memory_format=torch.channels_last) == wanted


def test_determinism_ends_with_the_run(partial_config: Callable[..., PConvConfig]) -> None:
    with started(partial_config(deterministic=True), "cpu"):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
