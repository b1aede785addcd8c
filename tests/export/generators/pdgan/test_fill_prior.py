"""PD-GAN with FillNet as its stage 1."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from export.checkpoint import load_strictly, read_checkpoint
from export.generators.pdgan.generator import PDGAN, PDGANOptions
from export.recognition import recognise

pytestmark = pytest.mark.slow

FAMILY = PDGAN()
SMALL = {"fill_widths": "4,6,8", "fill_encoder": "0,1,0", "fill_decoder": "0,1,1"}
OPTIONS = PDGANOptions.model_validate({"ngf": 4, "z_dim": 5, **SMALL})
ATTENTIVE = PDGANOptions.model_validate({**OPTIONS.model_dump(), "fill_widths": "4,8,8", "fill_context": "0,1,2"})
BOTH = pytest.mark.parametrize("options", [OPTIONS, ATTENTIVE], ids=["plain", "with attention"])


@pytest.fixture
def net(make_pdgan):
    return make_pdgan(OPTIONS)


def _inputs(size=1):
    generator = torch.Generator().manual_seed(4)
    mask = torch.zeros(size, 1, 256, 256)
    mask[..., 60:150, 40:200] = 1
    return torch.rand(size, 3, 256, 256, generator=generator), mask, torch.randn(size, 2, 5, generator=generator)


def _file_state(net):
    fill = {f"fill.{key}": tensor for key, tensor in net.prior.net.state_dict().items()}
    return {**fill, **net.PDGAN.state_dict()}


@BOTH
def test_the_graphs_agree_with_torch(options, make_pdgan, check_parity):
    check_parity(FAMILY, options, make_pdgan(options), names=("batch of 3",))


@BOTH
def test_one_file_comes_back_with_the_same_output(options, make_pdgan, tmp_path):
    net = make_pdgan(options)
    torch.save(_file_state(net), tmp_path / "generator.pth")
    found = recognise(read_checkpoint(tmp_path / "generator.pth").parts, None, {})
    assert (found.family.name, found.options) == ("pdgan", options)
    with torch.device("meta"):
        again = FAMILY.build(found.options)
    load_strictly(again, FAMILY.translate(found.state, found.options).state)
    assert torch.equal(FAMILY.wrap(again, options)(*_inputs()), FAMILY.wrap(net, options)(*_inputs()))


def test_a_context_without_attention_has_one_form():
    assert PDGANOptions.model_validate({**OPTIONS.model_dump(), "fill_context": "0,0,0"}) == OPTIONS


def test_the_prior_is_the_picture_outside_the_hole_and_the_fill_inside(net):
    image, mask, _ = _inputs()
    valid = 1 - mask
    scaled = image * 2 - 1
    prior = net.prior(scaled * valid, valid)
    assert torch.allclose(prior * valid, scaled * valid, atol=1e-6)
    filled = net.prior.net(image * valid, mask)
    assert torch.allclose((prior / 2 + 0.5) * mask, filled * mask, atol=1e-5)


def test_a_generator_that_makes_nothing_leaves_the_priors_picture(net):
    image, mask, latent = _inputs(2)
    net.PDGAN.conv_img.weight.zero_()
    net.PDGAN.conv_img.bias.zero_()
    valid = 1 - mask
    prior = net.prior((image * 2 - 1) * valid, valid) / 2 + 0.5
    for form in (FAMILY.wrap(net, OPTIONS), FAMILY.lower(net, OPTIONS)):
        found = form(image, mask, latent)
        assert found.shape == (2, 2, 3, 256, 256)
        assert torch.allclose(found, prior.clamp(0, 1)[:, None].expand_as(found), atol=1e-5)


def test_what_is_added_beyond_white_and_black_is_cut_off(net):
    net.PDGAN.conv_img.bias.copy_(torch.tensor([9.0, -9.0, 0.0]))
    found = FAMILY.lower(net, OPTIONS)(*_inputs())
    assert (float(found[:, :, 0].min()), float(found[:, :, 1].max())) == (1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diverse": False}, "use that family"),
        ({"fill_widths": "4"}, "2 to 7 levels"),
        ({"fill_encoder": ""}, "match"),
        ({"fill_context": "1"}, "context has one number a level"),
        ({"fill_widths": "wide"}, "fill_widths\n.*match"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        PDGANOptions.model_validate({**SMALL, **options})


@BOTH
def test_tensorrt_plans_are_built(options, check_plan):
    check_plan(FAMILY, options)
