"""program.pt2: the lowered net as a torch.export program, for hosts that run models with torch.compile.

A program of a newer torch may not load in an older one, so it is written only on request, by the torch that will run
it. Its half convolutions are torch's own, where those of the graph are ours: nothing is computed while it is written.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.export import Dim

from engines.manifest import Precision
from export.generators.family import Interface
from export.lowering import WEIGHTED
from export.onnx_graph import example_inputs

PROGRAM_FILE = "program.pt2"


def write_program(net: nn.Module, interface: Interface, precision: Precision, path: Path) -> None:
    """Write a lowered net in FP32 or with half weights; batch, samples, height and width stay free where they are."""
    laid_out = copy.deepcopy(net)
    for module in laid_out.modules():
        if isinstance(module, WEIGHTED) and precision == "fp16":
            module.half()
    laid_out = laid_out.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the stubs know no formats
    free = tuple(
        {axis: Dim.AUTO for axis, size in enumerate(spec.shape) if isinstance(size, str)} for spec in interface.inputs
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own file format
        program = torch.export.export(laid_out, example_inputs(interface, batch=2), dynamic_shapes=free)
        torch.export.save(program, path)
