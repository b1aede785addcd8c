"""Writes program.pt2: the lowered net as a torch.export program, for hosts that use torch.compile.

A program of a newer torch may not load in an older one, so it is written only on request, by the torch that will run
it. Its FP16 convolutions are torch's own, unlike those of the graph: writing the program computes nothing.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

from engines.manifest import Precision
from export.generators.family import Interface
from export.lowering import WEIGHTED
from export.onnx_graph import example_inputs

PROGRAM_FILE = "program.pt2"
_ALIGNMENT = 8
_FIRST_LAYER = 4


class AlignedConv(nn.Module):
    """An FP16 convolution whose channels are padded with zeros to a multiple of 8, for tensor cores.

    cuDNN would pad in a kernel of its own; here the padding is fused with the operations before and after.
    Transposed convolutions are not padded: it did not make them faster.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.channels = conv.out_channels
        self.missing_in, missing_out = _padding_channels(conv.in_channels), -conv.out_channels % _ALIGNMENT
        self.conv = copy.deepcopy(conv)
        self.conv.weight = _frozen_parameter(
            F.pad(conv.weight.detach(), (0, 0, 0, 0, 0, self.missing_in, 0, missing_out))
        )
        if conv.bias is not None:
            self.conv.bias = _frozen_parameter(F.pad(conv.bias.detach(), (0, missing_out)))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve as the original does."""
        filled = F.pad(x, (0, 0, 0, 0, 0, self.missing_in)) if self.missing_in else x
        y: Tensor = self.conv(filled)
        return y[:, : self.channels]


def _padding_channels(in_channels: int) -> int:
    """Return the channels to add; pictures with few channels get none, because their special kernels are faster."""
    return 0 if in_channels <= _FIRST_LAYER else -in_channels % _ALIGNMENT


def _frozen_parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)


def in_gpu_layout(net: nn.Module, precision: Precision) -> nn.Module:
    """Copy a lowered net in the layout for a GPU: channels last, FP16 weights if `precision` is fp16."""
    copied = copy.deepcopy(net)
    for module in list(copied.modules()) if precision == "fp16" else []:
        if isinstance(module, WEIGHTED):
            module.half()
        for name, child in list(module.named_children()):
            if _is_misaligned(child):
                setattr(module, name, AlignedConv(child.half()))
    return copied.to(memory_format=torch.channels_last)  # type: ignore[no-any-return,call-overload]  # unknown to the stubs


def _is_misaligned(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    if not isinstance(module, nn.Conv2d) or module.groups != 1:
        return False
    return bool(_padding_channels(module.in_channels) or module.out_channels % _ALIGNMENT)


def write_program(net: nn.Module, interface: Interface, precision: Precision, path: Path) -> None:
    """Write a lowered net in FP32 or FP16; dimensions that are dynamic in the interface stay dynamic."""
    free = [
        {axis: Dim.AUTO for axis, size in enumerate(spec.shape) if isinstance(size, str)} for spec in interface.inputs
    ]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own file format
        examples = example_inputs(interface, batch=2)
        program = torch.export.export(
            in_gpu_layout(net, precision), examples, dynamic_shapes=_grouped_inputs(net, free)
        )
        torch.export.save(program, path)


def _grouped_inputs(net: nn.Module, each: Sequence[Any]) -> tuple[Any, ...]:
    """Pack one entry per input as torch.export expects them: the inputs of `*others` become one tuple."""
    kinds = [parameter.kind for parameter in inspect.signature(net.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(each)
    first = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*each[:first], tuple(each[first:]))


def program_backend(path: Path) -> Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]:
    """Return a backend that runs a program on the CPU, with FP16 convolutions as in export.lowering.HalfConv."""
    module = torch.export.load(path).module()

    def run(feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        with torch.no_grad(), _WideConvolutions():
            output: NDArray[Any] = module(*(torch.from_numpy(array) for array in feed.values())).numpy()
        return output

    return run


class _WideConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no annotations
    """Computes FP16 convolutions in FP32 and rounds once: torch has no fast ones for most CPUs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation; all but FP16 convolutions run unchanged."""
        if func is not torch.ops.aten.convolution.default or args[0].dtype != torch.float16:
            return func(*args, **(kwargs or {}))
        wide = [value.float() if isinstance(value, Tensor) else value for value in args]
        return func(*wide, **(kwargs or {})).half()
