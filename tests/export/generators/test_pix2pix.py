from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from export.checkpoint import load_strictly, read_checkpoint
from export.errors import LayoutMismatch
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from export.lowering import to_half
from export.recognition import recognise
from export.states.finding import StateDict

FAMILY = Pix2Pix()
NETS = ("unet_128", "unet_256", "resnet_6blocks", "resnet_9blocks")


def _load(path, **overrides):
    found = recognise(read_checkpoint(path).parts, None, overrides)
    with torch.device("meta"):
        net = FAMILY.build(found.options)
    load_strictly(net, FAMILY.translate(found.state, found.options).state)
    return found.options, net


@pytest.mark.parametrize(
    ("name", "array", "overrides"),
    [
        ("pix2pix_unet_256_batch_tiny", "output", {}),
        ("pix2pix_unet_256_batch_tiny", "output_batchstats", {"batch-norm": "batch-statistics"}),
        ("pix2pix_resnet_9blocks_instance_tiny", "output", {}),
    ],
)
def test_goldens_come_out_of_torch_and_both_graphs(name, array, overrides, shared_file, run_graph, psnr):
    options, net = _load(shared_file(f"golden/{name}.pth"), **overrides)
    golden = np.load(shared_file(f"golden/{name}.npz"))
    feed, wanted = {"image": golden["image"] / 2 + 0.5}, golden[array] / 2 + 0.5
    with torch.inference_mode():
        found = FAMILY.wrap(net, options).eval()(torch.from_numpy(feed["image"])).numpy()
    assert np.abs(found - wanted).max() <= 1e-4
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= 1e-4
    rough = run_graph(FAMILY, options, net, feed, half=True)
    assert np.isfinite(rough).all()
    assert psnr(rough, wanted) >= 45


@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
@pytest.mark.parametrize("net", NETS)
def test_graphs_agree_with_torch(net, norm, make_net, check_parity):
    options = Pix2PixOptions(net=net, norm=norm, ngf=2, in_channels=1, out_channels=2)
    check_parity(FAMILY, options, make_net(FAMILY, options))


def test_blocks_that_replicate_their_edges_change_the_borders_alone_and_agree_in_both_graphs(make_net, check_parity):
    reflected = Pix2PixOptions(net="resnet_6blocks", norm="none", ngf=2)
    replicated = reflected.model_copy(update={"padding": "replicate"})
    net, other = make_net(FAMILY, reflected), FAMILY.build(replicated)
    other.load_state_dict(net.state_dict())
    image = torch.rand(1, 3, 160, 160)
    difference = (net(image) - other(image)).abs().amax((0, 1))
    assert difference[:8].max() > 1e-3
    assert difference[64:96, 64:96].max() < 1e-6
    check_parity(FAMILY, replicated, other.eval().requires_grad_(requires_grad=False))


def public_block(options: Pix2PixOptions) -> nn.Sequential:
    """Make the layers of a block of the public ResNet with `padding_type='zero'`, as its code has them."""
    channels = 4 * options.ngf
    norms: dict[str, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "instance": nn.InstanceNorm2d}
    norm, bias = norms.get(options.norm, lambda _: nn.Identity()), options.norm == "instance"
    layers: list[nn.Module] = [nn.Conv2d(channels, channels, 3, padding=1, bias=bias), norm(channels), nn.ReLU()]
    layers += [nn.Dropout(0.5)] if options.dropout else []
    return nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1, bias=bias), norm(channels))


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("norm", ["batch", "instance", "none"])
def test_blocks_that_pad_with_zeros_are_recognised_by_their_keys_and_agree_in_both_graphs(
    norm, dropout, make_net, round_trip, check_parity
):
    options = Pix2PixOptions(net="resnet_6blocks", norm=norm, ngf=2, dropout=dropout, padding="zero")
    net = make_net(FAMILY, options)
    block = public_block(options)
    block.load_state_dict(net.model[10].conv_block.state_dict())
    features = torch.rand(1, 8, 16, 16)
    assert torch.equal(net.model[10](features), features + block.eval()(features))
    image = torch.rand(1, 3, 128, 128)
    assert torch.equal(round_trip(FAMILY, options, net)(image), net(image))
    check_parity(FAMILY, options, net)
    assert list(FAMILY.examine(net, options, [])) == []


def test_what_a_file_does_not_show_of_the_borders_is_said_with_the_flag_for_the_other():
    def said(**options: str) -> list[str]:
        return list(FAMILY.examine(nn.Identity(), Pix2PixOptions.model_validate(options), []))

    (note,) = said(net="resnet_9blocks")
    assert "padding=reflect was assumed" in note
    assert "--option padding=replicate" in note
    assert said(net="resnet_9blocks", padding="replicate") == said(net="unet_256") == []


def test_batch_statistics_agree_at_every_batch_size(make_net, check_parity):
    options = Pix2PixOptions(net="unet_128", ngf=3, batch_norm="batch-statistics")
    check_parity(FAMILY, options, make_net(FAMILY, options))


def test_batch_statistics_differ_from_running_ones(make_net):
    options = Pix2PixOptions(net="unet_128", ngf=3)
    own = options.model_copy(update={"batch_norm": "batch-statistics"})
    net, image = make_net(FAMILY, options), torch.rand(1, 3, 128, 128)
    assert not torch.allclose(FAMILY.wrap(net, own)(image), FAMILY.wrap(net, options)(image), atol=1e-2)
    assert torch.allclose(FAMILY.wrap(net, own)(image), FAMILY.lower(net, own)(image), atol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_random_nets_come_back_from_a_file_with_the_same_options_and_output(seed, make_net, round_trip):
    rng = np.random.default_rng(seed)
    options = Pix2PixOptions(
        net=NETS[seed % 4],
        norm=str(rng.choice(["batch", "instance", "none"])),
        ngf=int(rng.integers(1, 5)),
        in_channels=int(rng.integers(1, 4)),
        out_channels=int(rng.integers(1, 4)),
        dropout=bool(seed % 4 > 1 and rng.integers(2)),
    )
    net = make_net(FAMILY, options, seed)
    image = torch.rand(1, options.in_channels, *((256, 256) if options.net == "unet_256" else (128, 128)))
    assert torch.equal(round_trip(FAMILY, options, net)(image), net(image))


def test_dropout_moves_a_key_of_the_resnet_block_and_nothing_else():
    plain, dropped = (
        FAMILY.build(Pix2PixOptions(net="resnet_6blocks", norm="none", ngf=1, dropout=d)).state_dict()
        for d in (False, True)
    )
    assert "model.10.conv_block.5.weight" in plain
    assert "model.10.conv_block.6.weight" in dropped
    assert len(plain) == len(dropped)


@pytest.mark.parametrize(
    ("net", "norm", "parameters", "keys"),
    [
        ("unet_256", "batch", 54_413_955, 82),
        ("unet_256", "instance", 54_409_603, 32),
        ("unet_128", "batch", 41_828_995, 70),
        ("resnet_6blocks", "instance", 7_837_699, 36),
        ("resnet_6blocks", "batch", 7_841_411, 104),
        ("resnet_9blocks", "instance", 11_378_179, 48),
        ("resnet_9blocks", "batch", 11_383_427, 140),
    ],
)
def test_full_width_nets_have_the_public_codes_parameters_and_keys(net, norm, parameters, keys):
    with torch.device("meta"):
        built = FAMILY.build(Pix2PixOptions(net=net, norm=norm))
    assert (sum(p.numel() for p in built.parameters()), len(built.state_dict())) == (parameters, keys)


def test_statistics_of_an_old_instance_norm_are_dropped_with_the_reason(make_net):
    options = Pix2PixOptions(net="resnet_6blocks", norm="instance", ngf=2)
    net = make_net(FAMILY, options)
    old = {**net.state_dict(), "model.2.running_mean": torch.zeros(2), "model.2.running_var": torch.ones(2)}
    assert FAMILY.recognise(old) == options
    translated = FAMILY.translate(old, options)
    assert set(translated.dropped) == {"model.2.running_mean", "model.2.running_var"}
    load_strictly(FAMILY.build(options), translated.state)


def test_instance_norm_keeps_its_statistics_in_full_precision_where_half_overflows():
    # activations near 3,000: their square overflows FP16, which ends at 65,504
    options = Pix2PixOptions(net="resnet_6blocks", norm="instance", ngf=2)
    net: Any = FAMILY.build(options).eval()
    net.model[1].weight.data.mul_(5000)
    image = torch.rand(1, 3, 32, 32)
    raw = net.model[1](net.model[0](image * 2 - 1)).half()
    assert not raw.square().isfinite().all()
    half, single = (make(FAMILY.lower(net, options))(image) for make in (to_half, lambda lowered: lowered))
    assert half.isfinite().all()
    assert (half - single).abs().max() < 0.02


def test_batch_norms_are_gone_from_the_lowered_net(make_net):
    for name in NETS:
        options = Pix2PixOptions(net=name, ngf=1)
        lowered = FAMILY.lower(make_net(FAMILY, options), options)
        assert not [module for module in lowered.modules() if isinstance(module, nn.BatchNorm2d)]


def _unet_keys(levels):
    keys = ["model.model.0.weight", "model.model.3.weight"]
    keys += ["model.model.1" + ".model.3" * level + ".model.1.weight" for level in range(levels - 1)]
    return {key: torch.zeros(1, 1, 4, 4) for key in keys}


def test_a_part_of_a_unet_is_not_taken_for_a_known_one():
    assert FAMILY.recognise(_unet_keys(1)) is None


@pytest.mark.parametrize("levels", [5, 9])
def test_unets_of_other_depths_are_refused_with_the_known_ones(levels):
    with pytest.raises(LayoutMismatch, match=rf"a pix2pix U-Net of {levels} levels.*those of 7 \(unet_128\) and 8"):
        FAMILY.recognise(_unet_keys(levels))


def test_resnets_of_other_depths_are_not_taken_for_known_ones():
    state = {f"model.{10 + i}.conv_block.1.weight": torch.zeros(4, 4, 3, 3) for i in range(5)}
    assert FAMILY.recognise(state) is None


@pytest.mark.parametrize("net", ["unet_128", "resnet_6blocks"])
def test_norms_that_a_file_does_not_tell_apart_are_refused_with_what_they_may_be(net, make_net):
    state = make_net(Pix2Pix(), Pix2PixOptions(net=net, ngf=2)).state_dict()
    without = {key: tensor for key, tensor in state.items() if "running" not in key and "num_batches" not in key}
    with pytest.raises(
        LayoutMismatch, match=r"weights and no running statistics \(model\..*affine instance norms, group"
    ):
        recognise([StateDict("", without)], None, {})


def test_wrong_norm_is_an_error_that_names_the_keys(make_net):
    state = make_net(FAMILY, Pix2PixOptions(net="unet_128", ngf=1)).state_dict()
    with pytest.raises(LayoutMismatch, match=r"unexpected: model\.model\.1\.model\.2\.weight"):
        load_strictly(FAMILY.build(Pix2PixOptions(net="unet_128", norm="none", ngf=1)), state)


def test_unets_take_one_size_and_resnets_multiples_of_four():
    assert [FAMILY.interface(Pix2PixOptions(net=net)).size.kind for net in NETS] == [
        "fixed",
        "fixed",
        "multiple",
        "multiple",
    ]
    assert FAMILY.interface(Pix2PixOptions(net="unet_128")).inputs[0].shape == ("batch", 3, 128, 128)


def test_colorization_nets_say_what_their_channels_mean():
    interface = FAMILY.interface(Pix2PixOptions(in_channels=1, out_channels=2))
    assert (interface.inputs[0].colours, interface.output.colours) == ("lightness", "ab")
    assert FAMILY.interface(Pix2PixOptions()).output.colours is None


def _draw(rng):
    net = str(rng.choice(NETS))
    return {
        "net": net,
        "norm": str(rng.choice(["batch", "instance", "none"])),
        "ngf": rng.integers(1, 80),
        "in_channels": rng.integers(1, 4),
        "out_channels": rng.integers(1, 4),
        "dropout": bool(net.startswith("resnet") and rng.integers(2)),
    }


def test_every_random_configuration_is_recognised(check_recognition):
    check_recognition(FAMILY, _draw)


@pytest.mark.parametrize(
    "options",
    [
        Pix2PixOptions(net="unet_128", ngf=2),
        Pix2PixOptions(net="unet_128", ngf=2, batch_norm="batch-statistics"),
        Pix2PixOptions(net="resnet_6blocks", norm="instance", ngf=2),
    ],
    ids=str,
)
def test_tensorrt_plans_are_built(options, check_plan):
    check_plan(FAMILY, options)
