"""A step of FillNet keeps its device busy: the host never waits for a value from the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from training.fill_config import FillConfig
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.tasks.fillnet import FillTrainee


class _Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators that make a host wait for its device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += {func.overloadpacket.__name__} & {"_local_scalar_dense", "nonzero", "masked_select", "equal"}
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_no_device(fill_config: Callable[..., FillConfig]) -> None:
    config = fill_config(
        thick=0.5,
        deterministic=False,  # fused Adam, as on a GPU
        shares={"perceptual": 0.0, "patches": 0.5},
        patches={"widths": [4, 4]},
    )
    made = FillTrainee(config, Runtime(torch.device("cpu"), config.precision))
    made.begin_phase(config.phase[0])
    for number in range(3):  # steps with and without R1, and with later updates of the average
        with _Waits() as waits:
            made.step(number, position_of_step(number, config.phase))
        assert waits.found == []
