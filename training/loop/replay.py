"""Updates replayed as one CUDA graph: one launch a step instead of one for each kernel.

A GPU that runs kernels faster than the host launches them waits for the host. A graph holds the launches of forward
passes, backward passes and optimisers, as PyTorch's "CUDA Graphs" notes describe for a whole network: the tensors that
it reads keep their addresses, and what changes from step to step is copied into them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Rate = float | Tensor
"""A learning rate; a tensor on the device where a graph reads it."""
NetUpdate = Callable[..., dict[str, Tensor]]
"""Maps the learning rate and a batch's tensors to detached scalars by name, and changes nets and optimisers."""

WARM_UP = 3
"""Calls before the recording, in which code is compiled and convolution algorithms are chosen."""


class Recording(Protocol):
    """The launches of a function, as torch.cuda.CUDAGraph holds them."""

    def replay(self) -> None:
        """Launch them again."""

    def reset(self) -> None:
        """Free the launches, even if something still refers to this object."""


class Recorder(Protocol):
    """Records what a function launches."""

    def run(self, work: Callable[[], None]) -> None:
        """Run the function without recording it, on the stream of recordings."""

    def record(self, work: Callable[[], None]) -> Recording:
        """Record what the function launches, without running it."""


class CUDARecorder:
    """Records CUDA graphs on a separate stream, as CUDA requires."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._memory = device, torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, work: Callable[[], None]) -> None:
        """Run the function on the stream: gradients are summed on the stream that first computed them."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Recording:
        """Record a CUDA graph. All graphs of a recorder share memory: each may overwrite the results of another.

        Calls of other threads, such as NCCL's, do not disturb the recording.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self._memory, self._stream, capture_error_mode="thread_local"):
            work()
        return graph


class ReplayedUpdate:
    """An update that is recorded at its fourth call and replayed from then on.

    Args:
        update: must not wait for the device. Between calls only its tensors, torch's own random numbers and the state
            of nets and optimisers may change; its tensors have the same shapes at every call.
        recorder: records the update.
        device: the device of the learning rate.
    """

    def __init__(self, update: NetUpdate, recorder: Recorder, device: torch.device) -> None:
        self._update, self._recorder = update, recorder
        self._rate = torch.zeros((), device=device)
        self._calls, self._inputs = 0, tuple[Tensor, ...]()
        self._names, self._values = tuple[str, ...](), torch.zeros(0)
        self._recording: Recording | None = None

    def __call__(self, rate: float, *inputs: Tensor) -> dict[str, Tensor]:
        """Run the update; returns its scalars, which later calls do not overwrite."""
        if self._calls < WARM_UP:
            self._inputs = inputs
        elif self._recording is None:
            self._inputs = tuple(each.clone() for each in inputs)
            self._recording = self._recorder.record(self._run)
        else:
            self._copy_inputs(inputs)
        self._calls += 1
        self._rate.fill_(rate)
        if self._recording is None:
            self._recorder.run(self._run)
        else:
            self._recording.replay()
        return dict(zip(self._names, self._values.clone().unbind(), strict=True))

    def end(self) -> None:
        """Free the recording, with its device memory and its NCCL messages."""
        if self._recording is not None:
            self._recording.reset()
            self._recording = None

    def _copy_inputs(self, inputs: tuple[Tensor, ...]) -> None:
        for held, each in zip(self._inputs, inputs, strict=True):
            if held.shape != each.shape:
                raise RuntimeError(f"a recorded update got {tuple(each.shape)} in place of {tuple(held.shape)}")
        torch._foreach_copy_(list(self._inputs), list(inputs))

    def _run(self) -> None:
        terms = self._update(self._rate, *self._inputs)
        self._names, self._values = tuple(terms), torch.stack(list(terms.values()))
