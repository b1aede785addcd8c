from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from export.checkpoint import load_strictly, read_checkpoint
from export.generators.pconv.unet import LoweredUNet, PConv, PConvOptions, PConvUNet
from export.lowering import to_half
from export.parity_inputs import MASK_KINDS, draw_mask
from export.partial_conv import PartialConv2d
from export.recognition import recognise

FAMILY = PConv()
TINY = PConvOptions(levels=3, width=4)


def _load(path):
    found = recognise(read_checkpoint(path).parts, None, {})
    with torch.device("meta"):
        net = FAMILY.build(found.options)
    load_strictly(net, FAMILY.translate(found.state, found.options).state)
    return found.options, net


def test_shipped_checkpoint_gives_the_public_codes_output_in_torch_and_both_graphs(shared_file, run_graph, psnr):
    options, net = _load(shared_file("checkpoints/pconv_photos.pth"))
    golden = np.load(shared_file("golden/pconv_photos.npz"))
    feed = {"image": golden["image"], "mask": golden["mask"]}
    assert options == PConvOptions(levels=7, width=64)
    with torch.inference_mode():
        found = FAMILY.wrap(net, options)(*map(torch.from_numpy, feed.values())).numpy()
    assert np.abs(found - golden["output"]).max() <= 1e-4
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - golden["output"]).max() <= 1e-4
    rough = run_graph(FAMILY, options, net, feed, half=True)
    assert np.isfinite(rough).all()
    assert psnr(rough, golden["output"]) >= 45


@pytest.mark.parametrize("options", [TINY, PConvOptions(levels=2, width=3), PConvOptions(levels=5, width=6)], ids=str)
def test_graphs_agree_with_torch_on_every_mask_batch_and_size(options, make_net, check_parity):
    check_parity(FAMILY, options, make_net(FAMILY, options))


@pytest.mark.parametrize("seed", range(8))
def test_random_nets_come_back_from_a_file_with_the_same_options_and_output(seed, make_net, round_trip):
    rng = np.random.default_rng(seed)
    options = PConvOptions(levels=int(rng.integers(2, 9)), width=int(rng.integers(1, 6)))
    net = make_net(FAMILY, options, seed)
    again = round_trip(FAMILY, options, net)
    side = 2**options.levels
    image, mask = torch.rand(2, 3, side, side), (torch.rand(2, 3, side, side) > 0.4).float()
    assert torch.equal(again(image, mask), net(image, mask))


def test_mask_convolutions_that_are_not_ones_are_followed_channel_by_channel(make_net, check_parity):
    net = make_net(FAMILY, TINY)
    generator = torch.Generator().manual_seed(2)
    for module in net.modules():
        if isinstance(module, PartialConv2d):
            module.mask_conv.weight.copy_(0.2 + torch.rand(module.mask_conv.weight.shape, generator=generator))
    assert not LoweredUNet(net).single
    check_parity(FAMILY, TINY, net)


def test_mask_channels_are_carried_as_one_where_the_mask_convolutions_are_ones(make_net):
    lowered = LoweredUNet(make_net(FAMILY, TINY))
    assert lowered.single
    assert lowered.blocks["dec_1"].ratio.counts.shape == (1, 2, 3, 3)
    assert lowered.blocks["dec_1"].ratio.counts[0, :, 0, 0].tolist() == [4, 3]


def test_mask_convolutions_left_out_of_the_file_are_ones(make_net):
    net = make_net(FAMILY, TINY)
    state = {key: tensor for key, tensor in net.state_dict().items() if "mask_conv" not in key}
    translated = FAMILY.translate(state, TINY)
    assert set(translated.added) == {
        f"{side}_{level}.conv.mask_conv.weight" for side in ("enc", "dec") for level in (1, 2, 3)
    }
    load_strictly(again := PConvUNet(TINY), translated.state)
    image, mask = torch.rand(1, 3, 16, 16), torch.ones(1, 3, 16, 16)
    assert torch.equal(again(image, mask), net(image, mask))


@pytest.mark.parametrize("kind", MASK_KINDS)
def test_half_nets_stay_finite_where_the_naive_ratio_does_not(kind, make_net):
    image = torch.rand(1, 3, 32, 32)
    mask = torch.from_numpy(draw_mask(kind, (32, 32), np.random.default_rng(1)))[None, None]
    output = to_half(FAMILY.lower(make_net(FAMILY, TINY), TINY))(image, mask)
    assert output.dtype == torch.float32
    assert output.isfinite().all()


@pytest.mark.parametrize("epsilon", [1e-8, 1e-6])
def test_the_naive_ratio_in_half_is_what_breaks_on_a_hole(epsilon):
    total = torch.zeros(1).half()
    ratio = 49 / (total + torch.tensor(epsilon).half()) * total.clamp(0, 1)
    assert not ratio.isfinite().all()


def test_windows_are_counted_in_full_precision_in_a_half_net(make_net):
    options = PConvOptions(levels=4, width=64)
    net: Any = to_half(FAMILY.lower(make_net(FAMILY, options), options))
    block = net.blocks["dec_4"]
    assert (block.ratio.window, block.ratio.counts.dtype) == (9 * (512 + 256), torch.float32)
    up, skip = torch.ones(1, 512, 8, 8).half(), torch.ones(1, 256, 8, 8).half()
    masks = [torch.ones(1, 1, 8, 8), torch.ones(1, 1, 8, 8)]
    block.conv.conv.weight.fill_(1 / block.ratio.window)
    # 6,656 of 6,912 valid: FP16 cannot count that far exactly, but the mean over the valid pixels is still 1
    masks[1][..., 3, 3] = 0
    block.shift.zero_()
    features, valid = block([up, skip * masks[1].half()], masks)
    assert valid.dtype == torch.float32
    assert (features.float() - 1).abs()[..., 1:-1, 1:-1].max() < 2e-3


def test_soft_masks_however_small_do_not_overflow_half(make_net):
    half = to_half(FAMILY.lower(make_net(FAMILY, TINY), TINY))
    for valid in (1e-7, 1e-4, 0.3):
        assert half(torch.rand(1, 3, 16, 16), torch.full((1, 1, 16, 16), 1 - valid)).isfinite().all()


def test_full_mask_gives_the_grey_of_imagenets_mean_through_a_net_of_zeros():
    net = PConvUNet(TINY).eval()
    for tensor in net.state_dict().values():
        tensor.zero_()
    output = FAMILY.wrap(net, TINY)(torch.rand(1, 3, 8, 8), torch.ones(1, 1, 8, 8))
    assert output[0, :, 0, 0].tolist() == pytest.approx([0.485, 0.456, 0.406])


def test_interface_asks_for_multiples_of_the_halvings():
    assert FAMILY.interface(PConvOptions(levels=7)).size.multiple_of == 128
    assert FAMILY.interface(PConvOptions(levels=8)).size.multiple_of == 256


def test_every_random_configuration_is_recognised(check_recognition):
    check_recognition(FAMILY, lambda rng: {"levels": rng.integers(2, 9), "width": rng.integers(1, 70)})


def test_tensorrt_plan_is_built(check_plan):
    check_plan(FAMILY, PConvOptions(levels=3, width=4))
