"""The training net equals the public net in keys and outputs."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from export.generators.pconv.unet import PConv, PConvOptions
from training.data.hole_masks import draw_shapes, fill_shapes
from training.nets.partial_conv import PartialUNet, checkpoint_state, initialise, layer_masks, training_state

OPTIONS = PConvOptions(levels=4, width=6)


@pytest.fixture
def net() -> PartialUNet:
    """Set random weights, and batch norms that change their input."""
    made, random = PartialUNet(OPTIONS), torch.Generator().manual_seed(1)
    initialise(made, random)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.bias.data):
                assert tensor is not None
                tensor.copy_(0.2 * torch.randn(tensor.shape, generator=random))
            for tensor in (module.running_var, module.weight.data):
                assert tensor is not None
                tensor.copy_(0.8 + 0.4 * torch.rand(tensor.shape, generator=random))
    bias = made.get_parameter("dec_1.conv.input_conv.bias")
    bias.data.copy_(torch.tensor([0.1, -0.2, 0.3]))
    return made.eval()


def holes(count: int, side: int = 32) -> Tensor:
    """Make holes: the first is empty, the second full, the others irregular."""
    drawn = fill_shapes(draw_shapes(count, (0.2, 0.8), torch.Generator().manual_seed(2)), side)
    drawn[0], drawn[1] = 0, 1
    return drawn


def reference(net: PartialUNet) -> nn.Module:
    public = PConv().build(OPTIONS)
    public.load_state_dict(PConv().translate(checkpoint_state(net), OPTIONS).state, strict=True)
    return PConv().wrap(public.eval(), OPTIONS)


@torch.no_grad()
def test_it_computes_what_the_public_net_computes_from_its_own_state(net: PartialUNet) -> None:
    image, hole = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(3)), holes(5)
    assert torch.allclose(net(image, hole), reference(net)(image, hole), atol=1e-4)


@torch.no_grad()
def test_in_half_precision_it_stays_near_fp32_even_on_empty_and_full_holes(net: PartialUNet) -> None:
    image, hole = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(3)), holes(5)
    exact = net(image, hole)
    with torch.autocast("cpu", torch.bfloat16):
        half = net(image, hole)
    assert half.dtype == torch.float32
    assert torch.isfinite(half).all()
    assert (half - exact).abs().mean() < 0.02 * exact.abs().mean()


def test_one_over_the_valid_part_is_finite_where_the_naive_ratio_overflows_fp16() -> None:
    valid = torch.zeros(1, 1, 32, 32)
    naive = 49 / (valid.sum().half() + torch.tensor(1e-6).half())
    assert (naive * 0).isnan()
    for window in layer_masks(valid, OPTIONS).values():
        assert (window.ratio == 0).all()


def test_a_ratio_lies_between_one_and_the_window() -> None:
    for name, window in layer_masks(1 - holes(6), OPTIONS).items():
        nonzero = window.ratio[window.ratio > 0]
        assert nonzero.min() > 0.999, name
        assert nonzero.max() <= 49.01 * (9 if name.startswith("dec") else 1), name


def test_weights_come_back_from_the_public_layout(net: PartialUNet) -> None:
    again = training_state(checkpoint_state(net))
    for key, tensor in again.items():
        assert torch.allclose(tensor, net.state_dict()[key]), key


@pytest.mark.parametrize("side", ["enc", "dec"])
def test_a_frozen_side_keeps_its_running_statistics_and_trains_its_weights(
    net: PartialUNet, side: Literal["enc", "dec"]
) -> None:
    net.train()
    net.freeze_norm(side)
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    net(torch.rand(2, 3, 32, 32), holes(2)).sum().backward()
    for key, tensor in net.state_dict().items():
        if "running" in key:
            assert torch.equal(tensor, before[key]) == key.startswith(side), key
    assert net.get_parameter(f"{side}_2.bn.weight").grad is not None
    net.train()
    assert net.get_submodule(f"{side}_2.bn").training


def test_weights_are_a_function_of_the_seed() -> None:
    first, second, other = (PartialUNet(OPTIONS) for _ in range(3))
    initialise(first, torch.Generator().manual_seed(1))
    initialise(second, torch.Generator().manual_seed(1))
    initialise(other, torch.Generator().manual_seed(2))
    weight = "enc_1.conv.input_conv.weight"
    assert torch.equal(first.get_parameter(weight), second.get_parameter(weight))
    assert not torch.equal(first.get_parameter(weight), other.get_parameter(weight))
