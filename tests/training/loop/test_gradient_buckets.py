"""Gradients averaged in buckets during the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.config import PConvConfig
from training.loop.gradient_buckets import GradientBuckets, compile_in_pieces
from training.loop.runtime import Runtime
from training.loop.updates import OptimiserUpdates

CPU = torch.device("cpu")
EACH = (1, 1)
"""Bucket sizes with which each bucket holds one parameter."""


class Halving:
    """A stand-in for messages to another process whose gradients are all 0: each mean is half of ours."""

    def __init__(self) -> None:
        self.sent = list[int]()

    def __call__(self, flat: Tensor) -> Callable[[], object]:
        self.sent.append(flat.numel())
        return lambda: flat.mul_(0.5)


def net_of(*sizes: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))


def gradients(net: nn.Module) -> list[Tensor | None]:
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in net.parameters()]


def plain_gradients(net: nn.Module, inputs: Tensor) -> list[Tensor | None]:
    net.zero_grad()
    net(inputs).square().sum().backward()
    found = gradients(net)
    net.zero_grad()
    return found


def assert_halved(found: list[Tensor | None], wanted: list[Tensor | None]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or theirs is None or torch.equal(ours, theirs / 2)


@dataclass(frozen=True)
class GlooRuntime(Runtime):
    """One of two processes, run in a thread with its own process group."""

    group: dist.ProcessGroup | None = None

    def begin_average(self, tensor: Tensor) -> Callable[[], object]:
        assert self.group is not None
        work = self.group.allreduce([tensor])

        def end() -> None:
            work.wait()
            tensor.div_(self.world)

        return end


def test_two_processes_get_the_weights_of_one_with_the_whole_batch(
    partial_config: Callable[..., PConvConfig],
) -> None:
    """In FP64, as Adam amplifies the rounding error of a gradient that should be 0; in two buckets."""
    config = partial_config()
    batches = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def train(runtime: Runtime, net: nn.Module) -> list[Tensor]:
        updates = OptimiserUpdates(net, config, runtime)
        first, last = runtime.samples_of_process(6)
        for batch in batches:
            updates.apply(net(batch[first:last]).square().mean(), 1e-2)
        return [parameter.detach() for parameter in net.parameters()]

    nets = [net_of(8, 300, 450, 4).double() for _ in range(3)]

    store = dist.HashStore()  # type: ignore[attr-defined]

    def process(rank: int) -> list[Tensor]:
        group = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))
        return train(GlooRuntime(CPU, "fp32", rank=rank, world=2, group=group), nets[rank])

    with ThreadPoolExecutor(2) as pool:
        leader, other = pool.map(process, (0, 1))
    alone = train(Runtime(CPU, "fp32"), nets[2])
    for ours, theirs, wanted in zip(leader, other, alone, strict=True):
        assert torch.equal(ours, theirs)
        torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)


def test_a_full_bucket_is_sent_while_the_backward_pass_goes_on() -> None:
    net, send, seen = net_of(4, 5, 6, 7), Halving(), list[list[int]]()
    hidden = net[0](torch.randn(3, 4))
    hidden.register_hook(lambda gradient: seen.append(list(send.sent)))
    with GradientBuckets(list(net.parameters()), send, *EACH).averaging():
        net[2](net[1](hidden)).sum().backward()
    assert seen == [[7, 42, 6, 30]]
    assert send.sent == [7, 42, 6, 30, 5, 20]


@pytest.mark.parametrize("sizes", [EACH, (1, 150), (300, 300), (10**6, 10**6)])
def test_each_gradient_is_averaged_once_however_large_buckets_are(sizes: tuple[int, int]) -> None:
    net, inputs = net_of(4, 5, 6, 7), torch.randn(3, 4)
    wanted, buckets = plain_gradients(net, inputs), GradientBuckets(list(net.parameters()), Halving(), *sizes)
    for _ in range(2):
        net.zero_grad()
        with buckets.averaging():
            net(inputs).square().sum().backward()
        assert_halved(gradients(net), wanted)


def test_parameters_without_a_gradient_hold_nothing_back() -> None:
    net, inputs = net_of(4, 5, 6, 7), torch.randn(3, 4)
    used = nn.Sequential(net[0], net[1])
    wanted = [*plain_gradients(used, inputs), None, None]
    with GradientBuckets(list(net.parameters()), Halving(), 1, 150).averaging():
        used(inputs).square().sum().backward()
    assert_halved(gradients(net), wanted)


def test_frozen_parameters_hold_nothing_back() -> None:
    net, inputs = net_of(4, 5, 6, 7), torch.randn(3, 4)
    net[1].requires_grad_(False)
    wanted, send = plain_gradients(net, inputs), Halving()
    with GradientBuckets(list(net.parameters()), send, *EACH).averaging():
        net(inputs).square().sum().backward()
    assert_halved(gradients(net), wanted)


def test_gradients_lie_in_memory_as_their_parameters_do() -> None:
    net, inputs = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), torch.randn(2, 3, 5, 5)  # type: ignore[call-overload]
    wanted = plain_gradients(net, inputs)
    with GradientBuckets(list(net.parameters()), Halving()).averaging():
        net(inputs).square().sum().backward()
    assert_halved(gradients(net), wanted)
    assert net.weight.grad.stride() == net.weight.stride()


def test_a_second_backward_pass_is_refused_and_the_next_update_is_sound() -> None:
    net, inputs = net_of(4, 5), torch.randn(3, 4)
    wanted, buckets = plain_gradients(net, inputs), GradientBuckets(list(net.parameters()), Halving())
    loss = net(inputs).square().sum()
    with pytest.raises(RuntimeError, match="one backward pass"), buckets.averaging():
        [loss.backward(retain_graph=True) for _ in range(2)]
    net.zero_grad()
    net(inputs).square().sum().backward()
    net.zero_grad()
    with buckets.averaging():
        net(inputs).square().sum().backward()
    assert_halved(gradients(net), wanted)


def test_alone_gradients_stay_as_they_are() -> None:
    net, inputs = net_of(4, 5), torch.randn(3, 4)
    wanted = plain_gradients(net, inputs)
    with GradientBuckets(list(net.parameters()), None).averaging():
        net(inputs).square().sum().backward()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients(net), wanted, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("send", [None, Halving()], ids=["alone", "two processes"])
def test_gradients_can_be_changed_where_they_are_gathered(send: Halving | None) -> None:
    net, inputs = net_of(4, 5, 6, 7), torch.randn(3, 4)
    used, buckets = nn.Sequential(net[0], net[1]), GradientBuckets(list(net.parameters()), send, 10**6, 10**6)
    for part in (net, used):  # the last layer's old gradients must not count
        wanted = [None if found is None else found * 0.5 for found in plain_gradients(part, inputs)]
        wanted += [None] * (len(list(net.parameters())) - len(wanted))
        with buckets.averaging():
            part(inputs).square().sum().backward()
        gathered = buckets.gathered()
        length = sum(found.square().sum() for found in gradients(net) if found is not None)
        assert torch.isclose(torch.cat(gathered).square().sum(), torch.as_tensor(length))
        for flat in gathered:
            flat.mul_(0.5 if send is None else 1.0)
        for ours, theirs in zip(gradients(net), wanted, strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or theirs is None or torch.equal(ours, theirs)
        net.zero_grad()


def count_backwards(output: Tensor) -> int:
    """Count the compiled functions that the backward pass from `output` runs."""
    found, waiting = set[torch.autograd.graph.Node](), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [following for following, _ in node.next_functions]
    return sum("CompiledFunction" in node.name() for node in found)


def test_compiled_code_hands_over_gradients_piece_by_piece() -> None:
    net, inputs = net_of(4, 5, 6, 7), torch.randn(3, 4)
    wanted = plain_gradients(net, inputs)
    whole, pieces = (partial(compile_in_pieces, net, "aot_eager")(*sizes) for sizes in ((10**6, 10**6), EACH))
    assert count_backwards(whole(inputs)) == 1
    torch.compiler.reset()
    output = pieces(inputs)
    assert count_backwards(output) == 3
    with GradientBuckets(list(net.parameters()), Halving(), *EACH).averaging():
        output.square().sum().backward()
    assert_halved(gradients(net), wanted)
