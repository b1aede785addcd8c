from __future__ import annotations

import numpy as np
import pytest
import torch

from export.checkpoint import load_strictly, read_checkpoint
from export.generators.pdgan.diverse import MaskConv, MaxDilation, SPDNorm, SpectralConv2d
from export.generators.pdgan.generator import PDGAN, PDGANOptions
from export.generators.pdgan.prior import LoweredPartialConv, PriorNet
from export.lowering import to_half
from export.parity_inputs import MASK_KINDS, draw_mask
from export.partial_conv import PartialConv2d
from export.recognition import recognise
from export.states.finding import StateDict

pytestmark = pytest.mark.slow

FAMILY = PDGAN()
TINY = PDGANOptions(prior_width=2, ngf=2, z_dim=5)
STAGE_ONE = PDGANOptions(prior_width=2, diverse=False)
FEW = ("sparse mask", "batch of 3")


def _nets(net):
    """Return the state dicts in the form of the public files."""
    states = {"EN": net.prior.EN.state_dict(), "DE": net.prior.DE.state_dict()}
    return states if net.PDGAN is None else {**states, "PDGAN": net.PDGAN.state_dict()}


def _reload(path_or_parts):
    parts = path_or_parts if isinstance(path_or_parts, list) else read_checkpoint(path_or_parts).parts
    found = recognise(parts, None, {})
    with torch.device("meta"):
        net = FAMILY.build(found.options)
    load_strictly(net, FAMILY.translate(found.state, found.options).state)
    return found, net


def _inputs(size=1):
    generator = torch.Generator().manual_seed(4)
    image = torch.rand(size, 3, 256, 256, generator=generator)
    masks = [draw_mask("ordinary", (256, 256), np.random.default_rng(i)) for i in range(size)]
    return image, torch.from_numpy(np.stack(masks))[:, None], torch.randn(size, 2, 5, generator=generator)


def test_golden_comes_out_of_torch_and_both_graphs_for_both_latents_at_once(load_golden, run_graph, psnr):
    options, net, golden = load_golden("pdgan_ones_tiny")
    assert options == PDGANOptions(prior_width=8, ngf=8, z_dim=16)
    latents = np.stack([golden["z"], golden["z2"]], 1)
    feed = {"image": golden["image"] / 2 + 0.5, "mask": golden["hole_mask"], "latent": latents}
    wanted = np.stack([golden["output"], golden["output_z2"]], 1) / 2 + 0.5
    with torch.inference_mode():
        found = FAMILY.wrap(net, options)(*map(torch.from_numpy, feed.values())).numpy()
    assert np.abs(found - wanted).max() <= 1e-4
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= 2e-4
    rough = run_graph(FAMILY, options, net, feed, half=True)
    assert np.isfinite(rough).all()
    assert psnr(rough, wanted) >= 40
    assert np.abs(rough[:, 0] - rough[:, 1]).max() > 0.005


def test_goldens_prior_is_the_picture_of_stage_one_alone(load_golden, shared_file):
    _, net, golden = load_golden("pdgan_ones_tiny")
    found, alone = _reload([StateDict("net", state) for name, state in _nets(net).items() if name != "PDGAN"])
    assert found.options == PDGANOptions(prior_width=8, diverse=False)
    picture = FAMILY.wrap(alone, found.options)(
        torch.from_numpy(golden["image"]) / 2 + 0.5, torch.from_numpy(golden["hole_mask"])
    )
    assert np.abs(picture.numpy() * 2 - 1 - golden["prior"]).max() <= 1e-4


@pytest.mark.parametrize("options", [TINY, STAGE_ONE], ids=str)
def test_graphs_agree_with_torch(options, make_pdgan, check_parity):
    check_parity(FAMILY, options, make_pdgan(options), names=FEW[1:] if options.diverse else FEW)


def test_random_mask_convolutions_of_stage_one_are_followed(make_pdgan, check_parity):
    net = make_pdgan(STAGE_ONE)
    generator = torch.Generator().manual_seed(2)
    for module in net.modules():
        if isinstance(module, PartialConv2d):
            module.mask_conv.weight.copy_(0.05 + 0.02 * torch.randn(module.mask_conv.weight.shape, generator=generator))
    assert not FAMILY.lower(net, STAGE_ONE).prior.EN.single
    check_parity(FAMILY, STAGE_ONE, net, names=FEW)


@pytest.mark.parametrize("options", [TINY, STAGE_ONE], ids=str)
def test_one_file_of_several_nets_comes_back_with_the_same_output(options, make_pdgan, tmp_path):
    net = make_pdgan(options)
    torch.save({**_nets(net), "optimizer": {"state": {}}}, tmp_path / "all.pth")
    found, again = _reload(tmp_path / "all.pth")
    assert found.options == options
    inputs = _inputs()[: 3 if options.diverse else 2]
    assert torch.equal(FAMILY.wrap(again, options)(*inputs), FAMILY.wrap(net, options)(*inputs))


def test_a_file_a_net_as_published_comes_back_with_the_same_output(make_pdgan, tmp_path):
    net, parts = make_pdgan(TINY), list[StateDict]()
    for name, state in _nets(net).items():
        torch.save({"net": state, "optimize": {"param_groups": []}}, tmp_path / f"2_net_{name}.pth")
        parts += read_checkpoint(tmp_path / f"2_net_{name}.pth").parts
    found, again = _reload(parts)
    assert found.notes == ("used 3 nets as one model",)
    assert torch.equal(FAMILY.wrap(again, TINY)(*_inputs()), FAMILY.wrap(net, TINY)(*_inputs()))


def test_keys_of_discriminators_are_dropped_with_the_reason(make_pdgan):
    nets = _nets(make_pdgan(TINY))
    state = {**nets["EN"], **nets["DE"], **nets["PDGAN"], "model0.0.weight": torch.zeros(1)}
    assert FAMILY.translate(state, TINY).dropped == {"model0.0.weight": "of another net"}
    without = FAMILY.translate(state, STAGE_ONE)
    assert without.dropped["fc.weight"] == "of another net"
    load_strictly(FAMILY.build(STAGE_ONE), without.state)


def test_full_width_nets_have_the_public_codes_parameters_and_keys():
    with torch.device("meta"):
        net = FAMILY.build(PDGANOptions())
    counts = {
        name: sum(p.numel() for p in module.parameters())
        for name, module in (("EN", net.prior.EN), ("DE", net.prior.DE), ("PDGAN", net.PDGAN))
    }
    assert counts == {"EN": 60_039_936, "DE": 18_098_499, "PDGAN": 186_007_263}
    assert {name: len(state) for name, state in _nets(net).items()} == {"EN": 36, "DE": 22, "PDGAN": 238}


def test_every_random_configuration_is_recognised():
    rng = np.random.default_rng(5)
    for _ in range(30):
        sizes = (
            {"ngf": int(rng.integers(1, 65)), "z_dim": int(rng.integers(1, 300))}
            if rng.integers(2)
            else {"diverse": False}
        )
        options = PDGANOptions(prior_width=int(rng.integers(1, 65)), **sizes)
        with torch.device("meta"):
            states = _nets(FAMILY.build(options))
        found = recognise([StateDict(name, dict(state)) for name, state in states.items()], None, {})
        assert (found.family.name, found.options) == ("pdgan", options)


@pytest.mark.parametrize("kind", MASK_KINDS)
def test_half_nets_stay_finite_on_every_mask(kind, make_pdgan):
    mask = torch.from_numpy(draw_mask(kind, (256, 256), np.random.default_rng(1)))[None, None]
    image, _, latent = _inputs()
    assert to_half(FAMILY.lower(make_pdgan(TINY), TINY))(image, mask, latent).isfinite().all()


@pytest.mark.parametrize("kernel", [3, 5])
def test_dilation_by_maximum_is_that_by_convolution(kernel):
    mask = torch.from_numpy(draw_mask("sparse", (32, 32), np.random.default_rng(1)))[None, None]
    assert torch.equal(MaxDilation(kernel)(mask), MaskConv(kernel)(mask))


def test_spectral_norm_is_that_of_torchs_old_hook():
    conv = SpectralConv2d(4, 6, 3)
    torch.manual_seed(1)
    for tensor in conv.state_dict().values():
        tensor.normal_()
    hooked = torch.nn.utils.spectral_norm(torch.nn.Conv2d(4, 6, 3, padding=1))
    hooked.load_state_dict(conv.state_dict())
    x = torch.rand(1, 4, 8, 8)
    assert torch.allclose(conv(x), hooked.eval()(x), atol=1e-5)


def test_pixels_are_normalised_with_the_unbiased_variance_in_full_precision():
    norm, prior, w = SPDNorm(4), torch.zeros(1, 3, 2, 2), torch.zeros(1, 1, 2, 2)
    x = torch.randn(1, 4, 2, 2) * 400
    wanted = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True) + 1e-5)
    assert torch.allclose(norm(x, prior, w), wanted, atol=1e-5)
    half = norm.half()(x.half(), prior.half(), w.half())
    assert not x.half().square().isfinite().all()
    assert torch.allclose(half.float(), wanted, atol=5e-3)


def test_a_quotient_beyond_half_survives_until_the_norm():
    conv = PartialConv2d((1, 1), 4, (2, 1), bias=False)
    conv.mask_conv.weight.data.fill_(1e-8)
    conv.input_conv.weight.data.fill_(1)
    y, _ = to_half(LoweredPartialConv(conv, single=False, normed=True))(
        torch.ones(1, 1, 8, 8).half(), torch.ones(1, 1, 8, 8)
    )
    assert y.dtype == torch.float32
    assert y.isfinite().all()
    assert y.max() > 65504


def test_samples_of_a_picture_are_those_of_the_picture_alone(make_pdgan):
    lowered = FAMILY.lower(make_pdgan(TINY), TINY)
    image, mask, latent = _inputs(2)
    together = lowered(image, mask, latent)
    assert together.shape == (2, 2, 3, 256, 256)
    assert torch.allclose(together[1:, 1:], lowered(image[1:], mask[1:], latent[1:, 1:]), atol=1e-3)
    assert not torch.allclose(together[:, 0], together[:, 1], atol=1e-2)


def test_stage_one_alone_has_no_latent():
    assert [spec.name for spec in FAMILY.interface(STAGE_ONE).inputs] == ["image", "mask"]
    assert [spec.name for spec in FAMILY.interface(TINY).inputs] == ["image", "mask", "latent"]
    assert isinstance(FAMILY.build(STAGE_ONE).prior, PriorNet)


@pytest.mark.parametrize(
    "options", [PDGANOptions(prior_width=2, diverse=False), PDGANOptions(prior_width=2, ngf=2, z_dim=4)], ids=str
)
def test_tensorrt_plans_are_built(options, check_plan):
    check_plan(FAMILY, options)
