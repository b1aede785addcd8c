"""program.pt2: the lowered net as a torch.export program, for hosts that run models with torch.compile.

A program of a newer torch may not load in an older one, so it is written only on request, by the torch that will run
it. Its half convolutions are torch's own, where those of the graph are ours: nothing is computed while it is written.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

from engines.manifest import Precision
from export.generators.family import Interface
from export.lowering import WEIGHTED
from export.onnx_graph import example_inputs

PROGRAM_FILE = "program.pt2"


def laid_out(net: nn.Module, precision: Precision) -> nn.Module:
    """A copy of a lowered net as a GPU runs it: channels last, half weights where the precision says so."""
    copied = copy.deepcopy(net)
    for module in copied.modules():
        if isinstance(module, WEIGHTED) and precision == "fp16":
            module.half()
    return copied.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]  # unknown to the stubs


def write_program(net: nn.Module, interface: Interface, precision: Precision, path: Path) -> None:
    """Write a lowered net in FP32 or with half weights; batch, samples, height and width stay free where they are."""
    free = tuple(
        {axis: Dim.AUTO for axis, size in enumerate(spec.shape) if isinstance(size, str)} for spec in interface.inputs
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own file format
        examples = example_inputs(interface, batch=2)
        program = torch.export.export(laid_out(net, precision), examples, dynamic_shapes=free)
        torch.export.save(program, path)


def program_backend(path: Path) -> Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]:
    """A written program on the CPU, its half convolutions computed as export.lowering.HalfConv computes them."""
    module = torch.export.load(path).module()

    def run(feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        with torch.no_grad(), _WideConvolutions():
            output: NDArray[Any] = module(*(torch.from_numpy(array) for array in feed.values())).numpy()
        return output

    return run


class _WideConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no annotations
    """Half convolutions in FP32, rounded once: torch has no fast ones for most CPUs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Any operation but a half convolution runs as it is."""
        if func is not torch.ops.aten.convolution.default or args[0].dtype != torch.float16:
            return func(*args, **(kwargs or {}))
        wide = [value.float() if isinstance(value, Tensor) else value for value in args]
        return func(*wide, **(kwargs or {})).half()
