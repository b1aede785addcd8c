"""The cells of a study: how the same steps are computed, and which of them a machine can run."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from training.config import AnyConfig, Precision
from training.errors import ConfigInvalid

BASELINE = "fp32"
BEST_ON_TWO = "best-2gpu"
DEFAULT = (BASELINE, "tf32", "bf16", "bf16-compiled", "fp16-compiled", BEST_ON_TWO)
_NAME = re.compile(r"(fp32|tf32|bf16|fp16)(-nhwc|-compiled)?(-graphs)?(-batch2)?(-2gpu)?")
_AMPERE, _VOLTA = (8, 0), (7, 0)


@dataclass(frozen=True)
class Cell:
    """A way to compute the steps of a config."""

    name: str
    precision: Precision
    compiled: bool = False
    """Whether nets are compiled by torch.compile; `parse_cell` then sets `channels_last` too."""
    channels_last: bool = False
    graphs: bool = False
    """Whether steps are replayed as CUDA graphs."""
    batches: int = 1
    """Factor by which the config's batch is multiplied."""
    gpus: int = 1


@dataclass(frozen=True)
class Machine:
    """The parts of a machine that decide which cells it runs."""

    gpus: int
    """0: the cells run on the CPU."""
    capability: tuple[int, int] | None = None
    """Compute capability of the GPUs, which are of one kind; None if it is not known."""
    has_compiler: bool = True
    """Whether there is a C++ compiler, which torch.compile needs."""


def parse_cell(name: str) -> Cell:
    """Parse PRECISION[-nhwc|-compiled][-graphs][-batch2][-2gpu].

    Raises:
        ConfigInvalid: there is no such cell.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigInvalid(
            f"cell {name!r}: write {BEST_ON_TWO}, or a precision (fp32, tf32, bf16, fp16) with -nhwc or -compiled, "
            "-graphs, -batch2 and -2gpu where wanted, in this order, as in bf16-compiled-batch2"
        )
    precision, order, replayed, doubled, two = found.groups()
    return Cell(
        name,
        cast("Precision", precision),
        compiled=order == "-compiled",
        channels_last=order is not None,
        graphs=replayed is not None,
        batches=2 if doubled else 1,
        gpus=2 if two else 1,
    )


def best_on_two(images_per_s: dict[str, float]) -> Cell | None:
    """Return the fastest cell measured on one GPU at the config's batch, changed to two GPUs; None without any."""
    cells = [cell for cell in map(parse_cell, images_per_s) if cell.gpus == cell.batches == 1]
    if not cells:
        return None
    return replace(max(cells, key=lambda cell: images_per_s[cell.name]), name=BEST_ON_TWO, gpus=2)


def reason_not_run(cell: Cell, machine: Machine) -> str | None:
    """Return why the machine cannot run the cell; None if no reason is known beforehand."""
    if cell.gpus > max(machine.gpus, 1):
        return f"it needs {cell.gpus} GPUs, and {machine.gpus} can be used here"
    if cell.precision == "tf32" and not machine.gpus:
        return "TF32 is a format of NVIDIA's GPUs"
    if cell.graphs and not machine.gpus:
        return "CUDA graphs run on NVIDIA's GPUs only"
    if cell.compiled and not machine.has_compiler:
        return "torch.compile needs a C++ compiler, and none was found"
    return _reason_of_capability(cell, machine.capability) if machine.gpus and machine.capability is not None else None


def _reason_of_capability(cell: Cell, capability: tuple[int, int]) -> str | None:
    if cell.precision in ("tf32", "bf16") and capability < _AMPERE:
        return f"GPUs before Ampere have no {cell.precision} products"
    if cell.compiled and capability < _VOLTA:
        return "torch.compile needs a GPU from Volta on"
    return None


def examine_machine(device: str | None) -> Machine:
    """Examine this machine without a CUDA context, whose memory would be measured as that of the cells."""
    has_compiler = any(map(shutil.which, ("c++", "g++", "clang++")))
    on_cpu = device == "cpu" or (device is None and not torch.cuda.device_count())
    if on_cpu:
        return Machine(0, has_compiler=has_compiler)
    gpus = 1 if device is not None and ":" in device else torch.cuda.device_count()
    return Machine(gpus, _cuda_capability(), has_compiler)


def _cuda_capability() -> tuple[int, int] | None:
    try:
        import pynvml  # noqa: PLC0415 -- not on every host
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError:
        return None
    return int(major), int(minor)


def config_of_cell(config: AnyConfig, cell: Cell, phase: int, steps: int, pictures: int) -> AnyConfig:
    """Return the config of a cell: one phase of `steps` steps, on at most `pictures` pictures.

    Cells with the same batch have the same losses, except for rounding.
    """
    chosen = config.phase[phase]
    whole: dict[str, Any] = {"steps": steps, "batch": chosen.batch * cell.batches}
    whole["warm_up"] = min(chosen.warm_up, steps // 10)
    data = config.data.model_copy(update={"limit": min(config.data.limit or pictures, pictures)})
    update = {"precision": cell.precision, "compile": cell.compiled, "channels_last": cell.channels_last}
    update["cuda_graphs"] = cell.graphs
    return config.model_copy(
        update={**update, "data": data, "seconds": None, "phase": [chosen.model_copy(update=whole)]}
    )
