"""Gradients averaged over processes in buckets, while the backward pass still computes others.

A bucket holds the gradients of neighbouring layers. It is sent as soon as it is full, and the backward pass goes on
beside the message. Compiled code hands over all its gradients at its end, so it is compiled in pieces as large as
buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

FIRST_BUCKET_BYTES, BUCKET_BYTES = 2**20, 25 * 2**20
"""Those of torch's DistributedDataParallel; the first is small, so that messages begin early."""

Send = Callable[[Tensor], Callable[[], object]]
"""Begins to average a tensor over all processes in place; returns what ends it."""
Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def compile_in_pieces(
    part: Compiled, compiler: str = "inductor", first_bytes: int = FIRST_BUCKET_BYTES, most_bytes: int = BUCKET_BYTES
) -> Compiled:
    """Compile a net, or a net with its losses, in pieces whose gradients arrive one piece after the other."""
    from torch._dynamo.backends.distributed import DDPOptimizer  # noqa: PLC0415 (takes a second to import)
    from torch._dynamo.backends.registry import lookup_backend  # noqa: PLC0415 (likewise)

    pieces = DDPOptimizer(most_bytes, lookup_backend(compiler), first_bytes)
    return cast("Compiled", torch.compile(part, dynamic=False, backend=pieces.compile_fn))


class _Place(NamedTuple):
    """A parameter and the order of its dimensions in memory, outermost first: values are sent without turning them."""

    parameter: nn.Parameter
    order: tuple[int, ...]

    def flatten(self, gradient: Tensor) -> Tensor:
        return gradient.permute(self.order).reshape(-1)

    def restore(self, flat: Tensor) -> Tensor:
        """Return a view of flat values that has the parameter's shape and lies in memory as it does."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return flat.view([self.parameter.shape[axis] for axis in self.order]).permute(back)


class GradientBuckets:
    """The buckets of a net's parameters.

    Args:
        parameters: in the order of the forward pass, which all processes share.
        send: begins to average a bucket; None: there is one process, and gradients stay as they are.
        first_bytes: size from which the first bucket counts as full.
        most_bytes: likewise for the others.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        send: Send | None,
        first_bytes: int = FIRST_BUCKET_BYTES,
        most_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._send, self._buckets = send, [list[_Place]()]
        held = 0
        for parameter in reversed(parameters):
            if held >= (first_bytes if len(self._buckets) == 1 else most_bytes):
                self._buckets.append([])
                held = 0
            order = sorted(range(parameter.ndim), key=parameter.stride, reverse=True)
            self._buckets[-1].append(_Place(parameter, tuple(order)))
            held += parameter.nbytes

    @contextmanager
    def averaging(self) -> Iterator[None]:
        """Average the gradients of the one backward pass in this context; at its end they are the means."""
        if self._send is None:
            yield
            return
        messages = _Messages(self._buckets, self._send)
        hooks = [
            place.parameter.register_post_accumulate_grad_hook(messages.note_arrival)  # type: ignore[no-untyped-call]
            for bucket in self._buckets
            for place in bucket
            if place.parameter.requires_grad  # a phase may freeze a part of the net
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        messages.finish()


class _Messages:
    """The messages of one backward pass.

    They are sent in the order of the buckets, which is the same in all processes, as messages that cross need.
    """

    def __init__(self, buckets: Sequence[Sequence[_Place]], send: Send) -> None:
        self._buckets, self._send = buckets, send
        self._awaited: list[set[Tensor]] = [
            {place.parameter for place in bucket if place.parameter.requires_grad} for bucket in buckets
        ]
        self._bucket_of: dict[Tensor, int] = {
            parameter: number for number, members in enumerate(self._awaited) for parameter in members
        }
        self._sent, self._ends = 0, list[Callable[[], object]]()

    def note_arrival(self, parameter: Tensor) -> None:
        """Send what is complete with this parameter's gradient."""
        number = self._bucket_of[parameter]
        if number < self._sent:
            raise RuntimeError("a gradient changed after it was sent; run one backward pass for each update")
        self._awaited[number].discard(parameter)
        while self._sent < len(self._buckets) and not self._awaited[self._sent]:
            self._send_next()

    @torch.no_grad()
    def _send_next(self) -> None:
        found = [(place, place.parameter.grad) for place in self._buckets[self._sent]]
        given = [(place, gradient) for place, gradient in found if gradient is not None]
        self._sent += 1
        if not given:
            return
        flat = torch.cat([place.flatten(gradient) for place, gradient in given])
        parts = torch.split(flat, [gradient.numel() for _, gradient in given])
        for (place, _), part in zip(given, parts, strict=True):
            place.parameter.grad = place.restore(part)
        self._ends.append(self._send(flat))

    def finish(self) -> None:
        """Send buckets that are not full, as some parameters had no gradient, and await all means."""
        while self._sent < len(self._buckets):
            self._send_next()
        for end in self._ends:
            end()
