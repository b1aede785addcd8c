from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from export.generators.pconv.nvidia import PConvNvidia, PConvNvidiaOptions
from export.lowering import to_half
from export.parity_inputs import MASK_KINDS, draw_mask

FAMILY = PConvNvidia()
TINY = PConvNvidiaOptions(levels=3, width=4)


@pytest.mark.parametrize("options", [TINY, PConvNvidiaOptions(width=2)], ids=str)
def test_graphs_agree_with_torch_on_every_mask_batch_and_size(options, make_net, check_parity):
    net = make_net(FAMILY, options)
    # like trained nets, whose pictures lie near [0, 1]; the ratio is applied twice here
    net.dec_1.conv.weight.mul_(0.02)
    check_parity(FAMILY, options, net)


def test_options_and_output_come_back_from_a_file(make_net, round_trip):
    options = PConvNvidiaOptions(width=3)
    net = make_net(FAMILY, options)
    image, mask = torch.rand(1, 3, 128, 128), (torch.rand(1, 3, 128, 128) > 0.4).float()
    assert torch.equal(round_trip(FAMILY, options, net)(image, mask), net(image, mask))


def test_full_width_net_has_the_public_codes_parameters_and_keys():
    with torch.device("meta"):
        net = FAMILY.build(PConvNvidiaOptions())
    assert (sum(p.numel() for p in net.parameters()), len(net.state_dict())) == (32_848_852, 17)


def test_every_random_configuration_is_recognised(check_recognition):
    check_recognition(FAMILY, lambda rng: {"width": rng.integers(1, 100)})


def test_a_valid_picture_is_an_ordinary_convolution_and_the_bias_meets_the_ratio(make_net):
    layer: Any = FAMILY.build(TINY).dec_1
    x, ones = torch.rand(1, 7, 8, 8), torch.ones(1, 7, 8, 8)
    inside = (..., slice(1, -1), slice(1, -1))
    assert torch.allclose(layer(x, ones)[0][inside], layer.conv(x)[inside], atol=1e-5)
    half = ones.clone()
    half[..., 4:] = 0
    ratio = 3 / 2  # two of the window's three columns are valid
    bare = torch.nn.functional.conv2d(x * half, layer.conv.weight, padding=1)
    wanted = (bare * ratio + layer.conv.bias.view(1, -1, 1, 1)) * ratio
    assert torch.allclose(layer(x, half)[0][0, :, 1:-1, 3], wanted[0, :, 1:-1, 3], atol=1e-5)


@pytest.mark.parametrize("kind", MASK_KINDS)
def test_half_nets_stay_finite_on_every_mask(kind, make_net):
    mask = torch.from_numpy(draw_mask(kind, (64, 64), np.random.default_rng(1)))[None, None]
    output = to_half(FAMILY.lower(make_net(FAMILY, TINY), TINY))(torch.rand(1, 3, 64, 64), mask)
    assert output.dtype == torch.float32
    assert output.isfinite().all()


def test_the_layer_in_half_is_nan_on_a_hole_where_the_lowered_one_is_not(make_net):
    net = make_net(FAMILY, TINY)
    image, hole = torch.rand(1, 3, 16, 16), torch.zeros(1, 3, 16, 16)
    assert net.half()(image.half(), hole.half()).isnan().any()
    assert to_half(FAMILY.lower(net.float(), TINY))(image, torch.ones(1, 1, 16, 16)).isfinite().all()


def test_tensorrt_plan_is_built(check_plan):
    check_plan(FAMILY, PConvNvidiaOptions(levels=3, width=4))
