"""Gradients averaged over processes in buckets, while the backward pass still computes others.

A bucket holds the gradients of neighbouring layers. It is sent as soon as it is full, while the backward pass
continues. Compiled code returns all its gradients at its end, so it is compiled in pieces as large as buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

FIRST_BUCKET_BYTES, BUCKET_BYTES = 2**20, 25 * 2**20
"""Bucket sizes of torch's DistributedDataParallel; the first is small, so that sending starts early."""

Send = Callable[[Tensor], Callable[[], object]]
"""Begins to average a tensor over all processes in place; returns a function that waits for the end."""
Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def compile_in_pieces(
    part: Compiled, compiler: str = "inductor", first_bytes: int = FIRST_BUCKET_BYTES, max_bytes: int = BUCKET_BYTES
) -> Compiled:
    """Compile a net, or a net with its losses, in pieces whose gradients arrive one piece after the other."""
    from torch._dynamo.backends.distributed import DDPOptimizer  # noqa: PLC0415 (takes a second to import)
    from torch._dynamo.backends.registry import lookup_backend  # noqa: PLC0415 (likewise)

    pieces = DDPOptimizer(max_bytes, lookup_backend(compiler), first_bytes)
    return cast("Compiled", torch.compile(part, dynamic=False, backend=pieces.compile_fn))


class _Bucket:
    """Neighbouring parameters and one tensor with all their gradients, of which each gradient is a view."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make the tensor; each view has its parameter's memory format, so that copies need no transposition."""
        self.parameters = tuple(parameters)
        self.flat = torch.zeros(
            sum(map(torch.numel, parameters)), dtype=parameters[0].dtype, device=parameters[0].device
        )
        parts = torch.split(self.flat, [parameter.numel() for parameter in parameters])
        self._views = [part.as_strided(like.shape, _dense(like)) for part, like in zip(parts, parameters, strict=True)]

    @torch.no_grad()
    def gather(self) -> bool:
        """Copy the gradients into the views, which replace them; returns whether there are any."""
        found = [(parameter, view) for parameter, view in zip(self.parameters, self._views, strict=True)]
        given = [(parameter, view, parameter.grad) for parameter, view in found if parameter.grad is not None]
        if given and len(given) < len(found):
            self.flat.zero_()  # else values of an earlier pass would be averaged where there is no gradient
        if given:
            torch._foreach_copy_([view for _, view, _ in given], [gradient for *_, gradient in given])
        for parameter, view, _ in given:
            parameter.grad = view
        return bool(given)


def _dense(like: Tensor) -> list[int]:
    """Return the strides of a tensor without gaps whose dimensions have the same order in memory as those of `like`."""
    return list(torch.empty_like(like, device="meta").stride())


class GradientBuckets:
    """The buckets of a net's parameters.

    Args:
        parameters: in the order of the forward pass, which all processes share.
        send: begins to average a bucket; None for a single process, whose gradients stay as they are.
        first_bytes: size from which the first bucket counts as full.
        max_bytes: size from which each other bucket counts as full.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        send: Send | None,
        first_bytes: int = FIRST_BUCKET_BYTES,
        max_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._send = send
        members, held = [list[nn.Parameter]()], 0
        for parameter in reversed(parameters):
            if held >= (first_bytes if len(members) == 1 else max_bytes):
                members.append([])
                held = 0
            members[-1].append(parameter)
            held += parameter.nbytes
        self._members, self._made = members, list[_Bucket]()

    @property
    def _buckets(self) -> list[_Bucket]:
        """The buckets, whose memory is allocated by the first update that needs them."""
        if not self._made:
            self._made = [_Bucket(found) for found in self._members if found]
        return self._made

    @contextmanager
    def averaging(self) -> Iterator[None]:
        """Average over processes the gradients of the one backward pass in this context; at its end they are means."""
        if self._send is None:
            yield
            return
        messages = _Messages(self._buckets, self._send)
        hooks = [
            parameter.register_post_accumulate_grad_hook(messages.note_arrival)  # type: ignore[no-untyped-call]
            for bucket in self._buckets
            for parameter in bucket.parameters
            if parameter.requires_grad  # a phase may freeze a part of the net
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        messages.finish()

    def gathered(self) -> list[Tensor]:
        """Return the buckets' tensors, of which each gradient is a view; those without a gradient are left out."""
        if self._send is not None:
            return [bucket.flat for bucket in self._buckets if any(p.grad is not None for p in bucket.parameters)]
        return [bucket.flat for bucket in self._buckets if bucket.gather()]


class _Messages:
    """The messages of one backward pass.

    They are sent in the order of the buckets, because all processes must send them in the same order.
    """

    def __init__(self, buckets: Sequence[_Bucket], send: Send) -> None:
        self._buckets, self._send = buckets, send
        self._awaited: list[set[Tensor]] = [
            {parameter for parameter in bucket.parameters if parameter.requires_grad} for bucket in buckets
        ]
        self._bucket_of: dict[Tensor, int] = {
            parameter: number for number, members in enumerate(self._awaited) for parameter in members
        }
        self._sent, self._ends = 0, list[Callable[[], object]]()

    def note_arrival(self, parameter: Tensor) -> None:
        """Send the buckets that are complete with this parameter's gradient."""
        number = self._bucket_of[parameter]
        if number < self._sent:
            raise RuntimeError("a gradient changed after it was sent; run one backward pass for each update")
        self._awaited[number].discard(parameter)
        while self._sent < len(self._buckets) and not self._awaited[self._sent]:
            self._send_next()

    def _send_next(self) -> None:
        bucket = self._buckets[self._sent]
        self._sent += 1
        if bucket.gather():
            self._ends.append(self._send(bucket.flat))

    def finish(self) -> None:
        """Send the remaining buckets, of which some parameters had no gradient, and wait for all means."""
        while self._sent < len(self._buckets):
            self._send_next()
        for end in self._ends:
            end()
