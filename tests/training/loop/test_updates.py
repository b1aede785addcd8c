"""Adam, loss scaling and averaged weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from training.config import PConvConfig
from training.loop.runtime import Runtime
from training.loop.updates import OptimiserUpdates, UpdateSettings, WeightAverage

CPU = torch.device("cpu")
Config = Callable[..., PConvConfig]


def updates(net: nn.Module, config: PConvConfig) -> OptimiserUpdates:
    return OptimiserUpdates(net, config, Runtime(CPU, config.precision))


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_goes_down_the_loss_by_the_learning_rate(precision: str, partial_config: Config) -> None:
    net = nn.Linear(1, 1)
    before = net.weight.item()
    updates(net, partial_config(precision=precision)).apply(3 * net.weight.sum(), 0.1)
    assert net.weight.item() == pytest.approx(before - 0.1, abs=1e-3)


def test_a_loss_that_overflows_with_its_scale_is_skipped_and_the_scale_halved(partial_config: Config) -> None:
    net = nn.Linear(1, 1)
    before, made = net.weight.item(), updates(net, partial_config(precision="fp16"))
    made.apply(net.weight.sum() * torch.tensor(float("inf")), 0.1)
    assert net.weight.item() == before
    scale = made.state()["scaler"]["scale"]
    made.apply(net.weight.sum(), 0.1)
    assert scale == 2.0**11
    assert net.weight.item() != before


def test_an_optimiser_goes_on_from_its_stored_moments(partial_config: Config) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    ours, theirs = updates(first, partial_config()), updates(second, partial_config())
    ours.apply(first.weight.square().sum(), 0.1)
    second.load_state_dict(first.state_dict())
    theirs.load(copy.deepcopy(ours.state()))
    for net, made in ((first, ours), (second, theirs)):
        made.apply(net.weight.square().sum(), 0.1)
    assert torch.equal(first.weight, second.weight)


def test_an_average_follows_the_net_with_its_running_statistics() -> None:
    net = nn.BatchNorm2d(1)
    average = WeightAverage(net, 0.9)
    average.update()
    net.weight.data.fill_(2)
    assert net.running_mean is not None
    net.running_mean.fill_(2)
    for _ in range(100):
        average.update()
    followed = average.net
    assert isinstance(followed, nn.BatchNorm2d)
    assert followed.running_mean is not None
    assert followed.weight.item() == pytest.approx(2, abs=1e-3)
    assert followed.running_mean.item() == pytest.approx(2, abs=1e-3)
    assert not followed.training


def test_an_average_that_is_loaded_goes_on_as_the_one_that_was_saved() -> None:
    net, found = nn.Linear(2, 2), []
    ours = WeightAverage(net, 0.5)
    ours.update()
    saved = copy.deepcopy(ours.state())
    theirs = WeightAverage(net, 0.5)
    theirs.load(saved)
    net.weight.data.add_(1)
    for average in (ours, theirs):
        average.update()
        found.append(average.net.get_parameter("weight"))
    assert torch.equal(*found)
    assert not torch.equal(found[0], net.weight), "the second update is no first one"


def test_without_decay_the_average_is_the_net() -> None:
    net = nn.Linear(1, 1)
    average = WeightAverage(net, 0.0)
    for value in (1.0, 5.0):
        net.weight.data.fill_(value)
        average.update()
    assert average.net.get_parameter("weight").item() == 5


def test_a_gradient_stands_for_a_loss_that_has_it(partial_config: Config) -> None:
    net = nn.Linear(1, 2, bias=False)
    before = net.weight.detach().clone()
    updates(net, partial_config()).apply(net.weight, 0.1, torch.tensor([[2.0], [-3.0]]))
    assert torch.allclose(net.weight - before, torch.tensor([[-0.1], [0.1]]), atol=1e-3)


def test_biases_go_a_part_of_the_way_and_what_is_not_finite_does_not_count(partial_config: Config) -> None:
    net = nn.Conv2d(1, 2, 1)
    filters, biases = net.weight.detach().clone(), net.bias.detach().clone()  # type: ignore[union-attr]
    config = partial_config()
    made = OptimiserUpdates(net, config, Runtime(CPU, config.precision), UpdateSettings((0.0, 0.99), 1e-3, 0.25))
    made.apply(net.weight.sum() + (net.bias * torch.tensor([1.0, float("inf")])).sum(), 0.1)  # type: ignore[operator]
    assert torch.allclose(net.weight - filters, torch.tensor(-0.1), atol=1e-3)
    assert net.bias is not None
    assert torch.allclose(net.bias - biases, torch.tensor([-0.025, 0.0]), atol=1e-3)


def test_long_gradients_are_shortened_together(partial_config: Config) -> None:
    net = nn.Conv2d(1, 1, 1)
    config = partial_config()
    made = OptimiserUpdates(net, config, Runtime(CPU, config.precision), UpdateSettings((0.0, 0.0), 0.5))
    made.apply(3 * net.weight.sum() + 4 * net.bias.sum(), 0.1)  # type: ignore[union-attr]
    found = [parameter.grad.item() for parameter in net.parameters() if parameter.grad is not None]
    assert found == pytest.approx([0.3, 0.4], abs=1e-5)


def test_held_parameters_stay_and_their_moments_follow(partial_config: Config) -> None:
    net, config = nn.Linear(1, 1), partial_config()
    made = OptimiserUpdates(net, config, Runtime(CPU, config.precision), UpdateSettings((0.5, 0.9), 1e3))
    before = [net.weight.item(), net.bias.item()]
    made.apply(net.weight.sum() + net.bias.sum(), 0.1, hold=True)
    assert [net.weight.item(), net.bias.item()] == before
    moments = made.state()["optimiser"]["state"]
    assert all(entry["exp_avg_sq"].abs().sum() > 0 for entry in moments.values())
    made.apply(net.weight.sum() + net.bias.sum(), 0.1)
    assert [net.weight.item(), net.bias.item()] == pytest.approx([value - 0.1 for value in before], abs=1e-4)
