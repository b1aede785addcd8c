"""The runtime of a run: its processes (one, or several under torchrun), device and precision."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.config import FitConfig, Precision
from training.errors import ConfigInvalid
from training.loop.gradient_buckets import compile_in_pieces
from training.loop.replay import CUDARecorder, NetUpdate, Recorder, ReplayedUpdate

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


@dataclass(frozen=True)
class Runtime:
    """One process of a run, with its device and precision."""

    device: torch.device
    precision: Precision
    layout: torch.memory_format = torch.contiguous_format
    rank: int = 0
    world: int = 1
    overlaps: bool = False
    """Whether gradients are averaged while the backward pass of compiled code continues."""
    _replayed: WeakSet[ReplayedUpdate] = field(default_factory=WeakSet, init=False, repr=False, compare=False)

    @property
    def is_leader(self) -> bool:
        """Whether this process writes files and the log."""
        return self.rank == 0

    def samples_of_process(self, batch: int) -> tuple[int, int]:
        """Return the first and last sample of the global batch that this process computes.

        Raises:
            ConfigInvalid: the batch cannot be split evenly.
        """
        if batch % self.world:
            raise ConfigInvalid(f"batch {batch} cannot be split over {self.world} processes; use a multiple")
        own = batch // self.world
        return self.rank * own, (self.rank + 1) * own

    def move_to_device(self, net: nn.Module) -> None:
        """Move a net to the device, with weights in the configured memory layout."""
        net.to(self.device)
        for parameter in net.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=self.layout)

    def autocast(self) -> AbstractContextManager[object]:
        """Return the autocast context: convolutions in half precision if configured; sums and norms in FP32."""
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return torch.autocast(self.device.type, kind, enabled=kind is not None)

    def compiles(self, wanted: bool | None) -> bool:
        """Return whether nets are compiled with torch.compile: as configured, else on GPUs only."""
        return self.device.type == "cuda" if wanted is None else wanted

    def compile(self, part: Compiled, wanted: bool | None) -> Compiled:
        """Return a net or its losses compiled for fixed shapes, if it `compiles`; with `overlaps` in pieces."""
        if not self.compiles(wanted):
            return part
        pieces = self.world > 1 and self.overlaps
        return compile_in_pieces(part) if pieces else cast("Compiled", torch.compile(part, dynamic=False))

    def recorder(self, *, wanted: bool) -> Recorder | None:
        """Return a recorder of updates, if wanted and on a GPU."""
        return CUDARecorder(self.device) if wanted and self.device.type == "cuda" else None

    def replay(self, update: NetUpdate, recorder: Recorder | None) -> NetUpdate:
        """Return an update that is replayed from a recording, or the update itself if there is no recorder.

        Recordings of one recorder share its memory.
        """
        if recorder is None:
            return update
        replayed = ReplayedUpdate(update, recorder, self.device)
        self._replayed.add(replayed)
        return replayed

    def end_replays(self) -> None:
        """Free all recordings, also of updates that are still referred to."""
        for update in self._replayed:
            update.end()

    def any_process(self, value: bool) -> bool:
        """Return whether the value is true in any process."""
        if self.world == 1:
            return value
        flag = torch.tensor(float(value), device=self.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def broadcast_from_leader(self, value: float) -> float:
        """Return the leading process's value, in every process."""
        if self.world == 1:
            return value
        held = torch.tensor(value, device=self.device)
        dist.broadcast(held, 0)
        return float(held)

    def average_over_processes(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors (logged losses, say) by their means over all processes, in one all-reduce."""
        if self.world == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.world
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        means = [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
        torch._foreach_copy_(list(tensors), means)

    def begin_average(self, tensor: Tensor) -> Callable[[], object]:
        """Begin to replace a tensor by its mean over all processes; returns a function that awaits it.

        On a GPU only the device waits.
        """
        work = dist.all_reduce(tensor, async_op=True)

        def end() -> None:
            work.wait()
            tensor.div_(self.world)

        return end

    def broadcast_buffers(self, net: nn.Module) -> None:
        """Copy the leading process's buffers to every process: running statistics differ with the data seen."""
        if self.world > 1:
            for buffer in net.buffers():
                dist.broadcast(buffer, 0)


@contextmanager
def start_runtime(config: FitConfig, device: str | None = None) -> Iterator[Runtime]:
    """Enter this process's part of the run, with torch set to the config's precision and determinism.

    Under torchrun each process takes the GPU of its local rank, or the CPU where there is none.

    Raises:
        ConfigInvalid: there is no such device.
    """
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    own = _choose_device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    _set_arithmetic(config)
    if world > 1:
        dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
    runtime = Runtime(own, config.precision, layout, rank, world, config.overlap)
    try:
        yield runtime
    finally:
        torch.use_deterministic_algorithms(mode=False)
        runtime.end_replays()
        if world > 1:
            dist.destroy_process_group()  # would wait for ever for CUDA graphs that hold NCCL's messages


def _choose_device(name: str | None) -> torch.device:
    """Choose the device: without a name a GPU if there is one; a GPU without a number is that of the local rank."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(name)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ConfigInvalid(f"device {name!r}: write cpu, cuda or cuda:N")
    if found.type == "cpu":
        return found
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) if found.index is None else found.index)
    count = torch.cuda.device_count()
    if own.index >= count:
        raise ConfigInvalid(
            f"device {own}: torch sees {count or 'none'} here, counted from 0; name another, or cpu; see nvidia-smi"
        )
    return own


def _set_arithmetic(config: FitConfig) -> None:
    """Set torch's arithmetic. TF32 is on for all precisions but fp32: half precision keeps FP32 only for its range."""
    exact = config.precision == "fp32"
    torch.set_float32_matmul_precision("highest" if exact else "high")
    torch.backends.cudnn.allow_tf32 = not exact
    torch.backends.cudnn.benchmark = not config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(mode=True)


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
