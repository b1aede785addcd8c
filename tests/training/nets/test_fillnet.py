"""FillNet in its training form, and the tensors of it that are saved."""

from __future__ import annotations

import pytest
import torch

from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.net import push_pull
from export.generators.fillnet.options import FillNetOptions
from training.nets.fillnet import (
    NormedConv,
    checkpoint_state,
    make_net,
    training_state,
)

OPTIONS = FillNetOptions(widths="6,5", encoder="1,1", decoder="1,1")
ATTENTIVE = FillNetOptions(widths="4,8,8,8", encoder="0,0,1,0", decoder="0,0,1,1", context="0,0,1,2")


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    image = torch.rand(2, 3, 32, 32, generator=random(1))
    return image, (torch.rand(2, 1, 32, 32, generator=random(2)) < 0.5).float()


@pytest.mark.parametrize("options", [OPTIONS, ATTENTIVE], ids=["convolutions", "attention"])
def test_the_public_net_computes_what_the_trained_one_does(options: FillNetOptions) -> None:
    net, public = make_net(options, random()), FillNet().build(options)
    for name, parameter in net.named_parameters():
        if "temperature" in name:
            torch.nn.init.uniform_(parameter, 0.5, 2.0, generator=random(3))
    public.load_state_dict(checkpoint_state(net))
    with torch.no_grad():
        assert torch.allclose(net(*batch()), public(*batch()), atol=1e-5)


@pytest.mark.parametrize("options", [OPTIONS, ATTENTIVE], ids=["convolutions", "attention"])
def test_a_public_state_can_be_trained_on(options: FillNetOptions) -> None:
    first, second = make_net(options, random()), make_net(options, random(9))
    second.load_state_dict(training_state(checkpoint_state(first)))
    with torch.no_grad():
        assert torch.allclose(first(*batch()), second(*batch()), atol=1e-5)
    assert torch.isclose(second.get_parameter("stem.weight").square().mean(), torch.tensor(1.0), atol=1e-4)


def test_a_new_net_begins_near_the_smooth_fill() -> None:
    image, hole = batch()
    with torch.no_grad():
        found = make_net(OPTIONS, random())(image, hole)
    smooth = torch.nn.functional.interpolate(push_pull(image, 1 - hole, 1), scale_factor=4.0, mode="bilinear")
    assert (found - smooth).abs().mean() < 0.15


def test_longer_filters_are_the_same_filters() -> None:
    conv = NormedConv(3, 4, 3, padding=1)
    torch.nn.init.normal_(conv.weight, generator=random())
    before = conv.folded().detach().clone()
    conv.weight.data *= 10
    assert torch.allclose(conv.folded(), before, atol=1e-5)
    assert torch.allclose(before.square().sum((1, 2, 3)).sqrt(), torch.tensor(1.387), atol=1e-4)
