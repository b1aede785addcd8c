"""Traces the operator calls of a training step: FLOPs, bytes, and device time.

FLOPs are counted by torch's own formulas (torch.utils.flop_counter: convolutions, products, attention; backward too);
all others count 0. Bytes are the minimum that an operator must move: every input tensor is read once, every tensor it
returns is written once. Caches can avoid some of these transfers, and changes of layout inside a library add others. So
a point of the roofline can lie above the bandwidth's ceiling; bytes are an estimate, not measured traffic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from training.loop.runtime import synchronise

_MARK = "call#"
_MAX_LISTED = 8
"""The shapes of a call are listed up to this many tensors; calls of an optimiser have more."""


@dataclass
class OperatorCalls:
    """All calls of one operator on tensors of the same shapes."""

    name: str
    shapes: str
    count: int = 0
    flop: int = 0
    bytes: int = 0
    device_s: float = 0.0


class _OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the FLOPs and bytes of operators by group, and labels the calls for the profiler.

    A group is an operator with the shapes of its inputs.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.groups: dict[tuple[str, str], tuple[int, OperatorCalls]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        index, group = self._group_of_calls(func.overloadpacket.__name__, given)
        with record_function(f"{_MARK}{index}"):
            result = func(*args, **kwargs)
        returned = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        group.count += 1
        if not (func.is_view or "empty" in group.name):  # such operators neither read nor write memory
            group.bytes += sum(map(_bytes_in_memory, given)) + sum(map(_bytes_in_memory, returned))
        if (formula := flop_registry.get(func.overloadpacket)) is not None:
            group.flop += int(formula(*args, **kwargs, out_val=result))
        return result

    def _group_of_calls(self, name: str, given: Sequence[Tensor]) -> tuple[int, OperatorCalls]:
        shapes = " ".join("×".join(map(str, tensor.shape)) for tensor in given if tensor.ndim > 1)
        if len(given) > _MAX_LISTED:
            shapes = f"{len(given)} tensors"
        return self.groups.setdefault((name, shapes), (len(self.groups), OperatorCalls(name, shapes)))


def _bytes_in_memory(tensor: Tensor) -> int:
    """Return the bytes of the tensor; of an expanded tensor only those in memory."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def trace_calls(step: Callable[[], object], device: torch.device) -> list[OperatorCalls]:
    """Run one step with counter and profiler; returns all groups of calls, including those without time, such as views.

    On a CPU, CPU time is used as device time.
    """
    counter = _OperatorCounter()
    with profile(activities=_activities(device)) as found, counter:
        step()
        synchronise(device)
    seconds: dict[int, float] = defaultdict(float)
    for event in found.events() or ():
        if event.name.startswith(_MARK) and _on_host(event):
            time_us = event.device_time_total if device.type == "cuda" else event.cpu_time_total
            seconds[int(event.name[len(_MARK) :])] += time_us / 1e6
    for index, calls in counter.groups.values():
        calls.device_s = seconds[index]
    return [calls for _, calls in counter.groups.values()]


@dataclass(frozen=True)
class Operator:
    """A row of the table of operators, over some steps."""

    name: str
    calls: int
    device_s: float
    """The operator's own time on the device, without the operators that it calls; on a CPU its own CPU time."""
    share: float
    self_cpu_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time including the operators that it calls."""
    memory_bytes: int = 0
    """The memory that it allocated itself on the device, minus what it freed."""


def top_operators(step: Callable[[], object], device: torch.device, steps: int) -> list[Operator]:
    """Return the twenty operators with the most self time on the device, including compiled kernels."""
    with profile(activities=_activities(device), profile_memory=True) as found:
        for _ in range(steps):
            step()
        synchronise(device)
    where = "device" if device.type == "cuda" else "cpu"
    rows = [
        Operator(
            row.key,
            row.count,
            getattr(row, f"self_{where}_time_total") / 1e6,
            0.0,
            row.self_cpu_time_total / 1e6,
            row.cpu_time_total / 1e6,
            getattr(row, f"self_{where}_memory_usage"),
        )
        for row in found.key_averages()
        if _on_host(row)
    ]
    total = sum(row.device_s for row in rows) or 1.0
    ranked = sorted(rows, key=lambda row: row.device_s, reverse=True)[:20]
    return [replace(row, share=row.device_s / total) for row in ranked if row.device_s > 0]


def _on_host(event: Any) -> bool:
    """Return whether the event is a call on the host; kernels that it launches are separate events, of the device."""
    return bool(event.device_type.name == "CPU")


def _activities(device: torch.device) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
