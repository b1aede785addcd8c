from __future__ import annotations

import pytest
import torch
from torch import nn

from export.lowering import HalfConv, InstanceNorm32, compute_type, lower_norms, to_half

KINDS = [
    nn.Conv2d(4, 6, 3, 2, 1, bias=False),
    nn.Conv2d(4, 6, (3, 5), padding=(1, 2), groups=2),
    nn.ConvTranspose2d(4, 6, 4, 2, 1),
    nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, bias=False),
]


def _normed(conv: nn.Module, norm: nn.Module) -> nn.Sequential:
    net = nn.Sequential(conv, norm, nn.ReLU()).eval()
    for tensor in net.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(1)) + 0.1)
    return net


@pytest.mark.parametrize("conv", KINDS, ids=str)
def test_batch_norm_is_folded_into_the_convolution_before_it(conv):
    net, x = _normed(conv, nn.BatchNorm2d(6)), torch.rand(2, 4, 8, 8)
    lowered = lower_norms(net)
    assert isinstance(lowered[1], nn.Identity)
    assert torch.allclose(lowered(x), net(x), atol=1e-5)


def test_lowering_leaves_the_net_as_it_was():
    net = _normed(KINDS[0], nn.BatchNorm2d(6))
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    to_half(lower_norms(net))
    assert all(torch.equal(tensor, before[key]) for key, tensor in net.state_dict().items())


def test_batch_statistics_are_those_of_training_mode_at_batch_one():
    net, x = _normed(KINDS[0], nn.BatchNorm2d(6)), torch.rand(1, 4, 8, 8)
    lowered = lower_norms(net, batch_statistics=True)
    assert torch.allclose(lowered(x), net.train()(x), atol=1e-6)


@pytest.mark.parametrize("affine", [True, False])
def test_instance_norms_keep_their_parameters(affine):
    net, x = _normed(KINDS[0], nn.InstanceNorm2d(6, affine=affine)), torch.rand(2, 4, 8, 8)
    lowered = lower_norms(net)
    assert isinstance(lowered[1], InstanceNorm32)
    assert torch.allclose(lowered(x), net(x), atol=1e-6)


@pytest.mark.parametrize(("scale", "naive_fails"), [(1000.0, True), (1e-3, True)])
def test_instance_norm_of_halves_is_that_of_floats_where_half_statistics_fail(scale, naive_fails):
    x = (torch.randn(1, 2, 16, 16, generator=torch.Generator().manual_seed(1)) * scale).half()
    wanted = nn.functional.instance_norm(x.float())
    deviation = x - x.mean((2, 3), keepdim=True)
    naive = deviation / (deviation.square().mean((2, 3), keepdim=True) + torch.tensor(1e-8).half()).sqrt()
    assert ((naive.float() - wanted).abs().max() > 0.05 or not naive.isfinite().all()) == naive_fails
    assert (InstanceNorm32()(x).float() - wanted).abs().max() < 2e-3


@pytest.mark.parametrize("conv", KINDS, ids=str)
def test_half_convolutions_round_once(conv):
    x = torch.rand(2, 4, 8, 8).half()
    half = to_half(nn.Sequential(conv))
    assert isinstance(half[0], HalfConv)
    exact = nn.Sequential(conv).double()(x.double()).float()
    conv.float()
    assert half(x).dtype == torch.float16
    assert torch.allclose(half(x).float(), exact, rtol=2e-3, atol=2e-3)


def test_linear_layers_are_made_half_and_norms_are_not():
    half = to_half(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert (half[0].weight.dtype, half[1].weight.dtype) == (torch.float16, torch.float32)


def test_compute_type_is_that_of_the_first_weights():
    net = nn.Sequential(nn.ReLU(), nn.Conv2d(1, 1, 1))
    assert compute_type(net) == torch.float32
    assert compute_type(to_half(net)) == torch.float16
    assert compute_type(nn.ReLU()) == torch.float32
