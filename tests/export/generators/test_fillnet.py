from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from export.activations import largest_activation
from export.generators.fillnet.attention import Attention
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.net import make_net_input, push_pull
from export.generators.fillnet.options import FillNetOptions

FAMILY = FillNet()
TINY = FillNetOptions(widths="6,5,4", encoder="1,0,1", decoder="0,2,1")
ATTENTIVE = FillNetOptions(widths="4,8,8,8", encoder="0,0,1,1", decoder="0,0,1,1", context="0,0,1,2")


@pytest.mark.parametrize(
    "options",
    [
        TINY,
        FillNetOptions(widths="4,8,8,8,8", encoder="0,1,1,1,0", decoder="1,1,1,1,1"),
        ATTENTIVE,
    ],
    ids=str,
)
def test_graphs_agree_with_torch_and_options_come_back(options, make_net, check_parity, round_trip):
    net = make_net(FAMILY, options)
    check_parity(FAMILY, options, net)
    image = torch.rand(2, 3, options.multiple, 2 * options.multiple)
    mask = (torch.rand(2, 1, *image.shape[2:]) < 0.5).float()
    assert torch.equal(round_trip(FAMILY, options, net)(image, mask), net(image, mask))


def test_full_width_net_fits_thirty_megabytes_in_half_precision():
    net = FAMILY.build(FillNetOptions())
    assert sum(p.numel() for p in net.parameters()) == 14_268_537


def test_every_random_configuration_is_recognised(check_recognition):
    def options(rng):
        levels = int(rng.integers(2, 8))
        return {
            "widths": ",".join(map(str, 4 * rng.integers(1, 4, levels))),
            "encoder": ",".join(map(str, rng.integers(0, 4, levels))),
            "decoder": ",".join(map(str, rng.integers(0, 4, levels))),
            "context": rng.choice(["", ",".join(map(str, rng.integers(0, 4, levels)))]),
        }

    check_recognition(FAMILY, options)


def test_without_a_layer_there_is_no_context():
    assert FillNetOptions(context="0,0,0,0,0") == FillNetOptions()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"context": "0,1"}, "one number a level"), ({"widths": "96,192,250,256,256", "context": "0,0,1,0,0"}, "4 heads")],
    ids=str,
)
def test_attention_that_does_not_fit_the_levels_is_refused(wrong, reason):
    with pytest.raises(ValueError, match=reason):
        FillNetOptions.model_validate(wrong)


@pytest.mark.parametrize(
    "wrong", [{"widths": "8"}, {"encoder": "1,1"}, {"widths": "0,8,8,8,8"}, {"widths": "8,x"}], ids=str
)
def test_levels_that_do_not_fit_each_other_are_refused(wrong):
    with pytest.raises(ValueError, match="widths"):
        FillNetOptions.model_validate(wrong)


def test_known_pixels_come_back_unchanged_and_the_rest_is_a_colour(make_net):
    net = FAMILY.wrap(make_net(FAMILY, TINY), TINY)
    image, mask = torch.rand(1, 3, 48, 32), (torch.rand(1, 1, 48, 32) < 0.5).float()
    with torch.inference_mode():
        output = net(image, mask)
    assert torch.equal(output * (1 - mask), image * (1 - mask))
    assert output.min() >= 0
    assert output.max() <= 1


def test_what_lies_under_the_mask_has_no_influence(make_net):
    net = FAMILY.wrap(make_net(FAMILY, TINY), TINY)
    image, mask = torch.rand(1, 3, 32, 32), torch.zeros(1, 1, 32, 32)
    mask[..., 8:24, 8:24] = 1
    with torch.inference_mode():
        assert torch.equal(net(image, mask), net(image * (1 - mask), mask))


def test_push_pull_keeps_what_is_known_and_continues_a_plain_colour():
    image = torch.rand(1, 3, 64, 64)
    known = torch.ones(1, 1, 64, 64)
    known[..., 12:52, 20:40] = 0
    filled = push_pull(image, known, 3)
    cells = torch.nn.functional.avg_pool2d(image, 4)
    assert torch.allclose(filled[..., :3, :], cells[..., :3, :], atol=1e-6)
    assert torch.allclose(filled[..., :5], cells[..., :5], atol=1e-6)
    plain = torch.full((1, 3, 64, 64), 0.3)
    assert torch.allclose(push_pull(plain, known, 3), torch.tensor(0.3), atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1e-4, 0.5, 1.0])
def test_push_pull_stays_in_range_for_soft_and_full_masks(value):
    filled = push_pull(torch.rand(1, 3, 32, 32), torch.full((1, 1, 32, 32), 1 - value), 3)
    assert torch.isfinite(filled).all()
    assert filled.min() >= 0
    assert filled.max() <= 1 + 1e-5


def test_the_net_sees_known_pixels_and_the_smooth_fill_elsewhere():
    image, hole = torch.rand(1, 3, 16, 16), torch.zeros(1, 1, 16, 16)
    hole[..., 5:14, 2:9] = 1
    filled = push_pull(image, 1 - hole, 1)
    seen = torch.nn.functional.pixel_shuffle((make_net_input(image, hole, filled) + 1) / 2, 4)
    wide = filled.repeat_interleave(4, 2).repeat_interleave(4, 3)
    assert torch.allclose(seen, torch.cat([torch.where(hole > 0, wide, image), hole], 1), atol=1e-6)


def test_every_part_of_a_large_picture_reaches_the_middle_of_its_hole(make_net):
    net = make_net(FAMILY, FillNetOptions(widths="4,4,4,4,4"))
    image = torch.rand(1, 3, 512, 512, requires_grad=True)
    hole = torch.zeros(1, 1, 512, 512)
    hole[..., 32:480, 32:480] = 1
    net(image, hole)[..., 256, 256].sum().backward()
    reached = image.grad.abs().amax(1)[0].numpy()
    assert all(reached[where].any() for where in (np.s_[:32], np.s_[480:], np.s_[:, :32], np.s_[:, 480:]))


def test_with_attention_a_pixel_depends_on_the_farthest_pixels(make_net):
    def reach(context):
        options = FillNetOptions(widths="4,4,4,4", encoder="0,0,0,0", decoder="0,0,0,0", context=context)
        net = make_net(FAMILY, options)
        net.overall.weight.zero_()  # else the mean of the whole picture would reach every pixel
        image = torch.rand(1, 3, 512, 512, requires_grad=True)
        net(image, torch.zeros(1, 1, 512, 512))[..., 8, 8].sum().backward()
        return image.grad[..., -64:, -64:].abs().sum()

    assert reach("") == 0
    assert reach("0,0,0,1") > 0


def test_attention_has_no_larger_values_than_its_input():
    layer = Attention(8, torch.nn.Conv2d)
    for conv in (layer.query, layer.key, layer.value, layer.out):
        torch.nn.init.dirac_(conv.weight)
        torch.nn.init.zeros_(conv.bias)
    picture = 200 * torch.rand(1, 8, 4, 4).numpy()
    assert largest_activation(layer, [{"x": picture}]) < 1000, "the square of 200 is too large for FP16"


def test_attention_copies_from_similar_positions():
    layer: Any = Attention(4, torch.nn.Conv2d)
    one = torch.eye(4)[:, :, None, None]
    for conv in (layer.query, layer.key, layer.value, layer.out):
        conv.weight.data.copy_(one)
        conv.bias.data.zero_()
    layer.temperature.data.fill_(5.0)
    x = torch.rand(1, 4, 6, 6) + 0.1
    x[..., 3:] *= -1  # one channel a head: a position resembles those with its sign
    with torch.no_grad():
        taken = layer(x) - x
    active = torch.nn.functional.leaky_relu(x, 0.2)
    for half in (np.s_[..., :3], np.s_[..., 3:]):
        assert torch.allclose(taken[half], active[half].mean((2, 3), keepdim=True).expand(1, 4, 6, 3), atol=1e-3)


@pytest.mark.parametrize("options", [TINY, ATTENTIVE], ids=["convolutions", "attention"])
def test_tensorrt_plan_is_built(check_plan, options):
    check_plan(FAMILY, options)
