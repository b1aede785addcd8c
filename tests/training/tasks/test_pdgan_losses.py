"""The losses of PD-GAN's generator and discriminators, and the discriminator on VGG16's features in its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from export.generators.pdgan.generator import PDGANOptions
from tests.training.whole_runs import save_untrained_vgg16
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.losses.partial_conv import perceptual_distance
from training.losses.scaled_patch_gan import ScaledPatchGAN, scaled_matching_loss
from training.losses.vgg16 import VGG16Features
from training.nets.pdgan import build_nets
from training.pdgan_config import PDGANConfig, PDGANPhase
from training.tasks.pdgan import PDGANTrainee
from training.tasks.pdgan_losses import DiverseLosses, compared_features

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
Config = Callable[..., PDGANConfig]
PHASE = {"part": "diverse", "steps": 3, "batch": 1, "learning_rate": 1e-3, "diversity": 0.0, "projected": 1.0}
PROJECTED = {"width": 4, "penalty": 0.0, "penalty_every": 1}


def diverse_losses() -> DiverseLosses:
    nets = build_nets(PDGANOptions(prior_width=2, ngf=2, z_dim=4), torch.Generator().manual_seed(1))
    phase = PDGANPhase.model_validate({"steps": 1, "batch": 2, "learning_rate": 1e-3})
    return DiverseLosses(nets, ScaledPatchGAN(4, 2, 2, 1), None, phase)


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return two pictures, their masks, priors and latents."""
    random = torch.Generator().manual_seed(2)
    image, prior = torch.rand(2, 2, 3, 256, 256, generator=random) * 2 - 1
    valid = torch.ones(2, 1, 256, 256)
    valid[0, :, 40:90, 30:200], valid[1, :, 100:, 100:180] = 0, 0
    return image, valid, prior, torch.randn(2, 2, 4, generator=random)


def test_what_is_judged_is_the_fill_inside_its_picture() -> None:
    image, valid, prior, latents = inputs()
    with torch.no_grad():
        filled, _terms = diverse_losses()(image, valid, prior, latents)
    outside = (valid > 0).repeat_interleave(2, 0).expand_as(filled)
    pictures = image.repeat_interleave(2, 0)
    assert torch.equal(filled[outside], pictures[outside])
    assert not torch.isclose(filled[~outside], pictures[~outside]).all()


def test_both_fills_of_a_picture_are_compared_with_that_picture() -> None:
    losses, (image, valid, prior, latents) = diverse_losses(), inputs()
    pictures, hole = image.repeat_interleave(2, 0), 1 - valid.repeat_interleave(2, 0)
    with torch.no_grad():
        filled, terms = losses(image, valid, prior, latents)
        expected = scaled_matching_loss(losses.judge(hole, filled), losses.judge(hole, pictures))
        wrong = scaled_matching_loss(losses.judge(hole, filled), losses.judge(hole, image.repeat(2, 1, 1, 1)))
    assert torch.allclose(terms["matching"], expected)
    assert not torch.isclose(wrong, expected)


def test_features_of_both_fills_are_compared_with_those_of_their_picture() -> None:
    features, (image, *_others) = VGG16Features(), inputs()
    small = image[..., ::8, ::8]
    with torch.no_grad():
        near, far = (
            perceptual_distance(*compared_features(features, filled, small))
            for filled in (small.repeat_interleave(2, 0), small.repeat(2, 1, 1, 1))
        )
    assert float(near) == 0
    assert far > 0


@pytest.fixture
def untrained_features(tmp_path: Path) -> Path:
    return save_untrained_vgg16(tmp_path / "vgg16.safetensors")


def begun(config: PDGANConfig) -> PDGANTrainee:
    trainee = PDGANTrainee(config, Runtime(CPU, "fp32"))
    trainee.begin_phase(config.phase[0])
    return trainee


def test_the_discriminator_on_vgg16_learns_and_comes_back_from_a_checkpoint(
    pdgan_config: Config, untrained_features: Path
) -> None:
    config = pdgan_config(features=untrained_features, projected=PROJECTED, phase=[PHASE])
    first, second = begun(config), begun(config)
    before = {key: value.clone() for key, value in first.state()["projected"]["net"].items()}
    first.step(1, position_of_step(1, config.phase))
    after = first.state()["projected"]["net"]
    assert [key for key, value in before.items() if key.endswith("weight") and torch.equal(after[key], value)] == []
    second.load(first.state())
    position = position_of_step(2, config.phase)
    assert first.step(2, position) == second.step(2, position)


def test_its_loss_is_added_to_the_generators(pdgan_config: Config, untrained_features: Path) -> None:
    both = [
        begun(pdgan_config(features=untrained_features, projected=section, phase=[{**PHASE, "projected": weight}]))
        for section, weight in ((PROJECTED, 3.0), (None, 0.0))
    ]
    position = position_of_step(1, pdgan_config(phase=[{**PHASE, "projected": 0.0}]).phase)
    with_it, without = (trainee.step(1, position) for trainee in both)
    assert torch.allclose(with_it["loss"], without["loss"] + 3 * with_it["projected"])
    assert with_it["projected"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projected": PROJECTED, "features": "x", "phase": [{**PHASE, "projected": 0.0}]}, "both a section and"),
        ({"features": "x", "phase": [PHASE]}, "both a section and"),
        (
            {"projected": PROJECTED, "features": "x", "phase": [{**PHASE, "part": "prior"}, {**PHASE, "projected": 0}]},
            "both a section and",
        ),
        ({"projected": PROJECTED, "phase": [PHASE]}, "VGG16's path"),
        ({"projected": {"width": 4, "penalty": 0.0}, "features": "x", "phase": [PHASE]}, "penalty_every = 1"),
    ],
)
def test_a_discriminator_on_vgg16_without_what_it_needs_is_refused(
    options: dict[str, Any], message: str, pdgan_config: Config
) -> None:
    with pytest.raises(ValidationError, match=message):
        pdgan_config(**options)
