"""The batches, nets and losses of a PD-GAN run, and what half precision would do to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from export.generators.pdgan.diverse import SpectralConv2d
from export.generators.pdgan.generator import PDGAN, PDGANNet, PDGANOptions
from export.partial_conv import PartialConv2d
from training.config import load_config
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.losses.diverse_fills import diversity_loss, generator_hinge_loss, hinge_loss
from training.losses.scaled_patch_gan import ScaleRatings
from training.nets.pdgan import TrainedPartialConv, TrainedSpectralConv, build_nets, checkpoint_state
from training.pdgan_config import PDGANConfig
from training.tasks.pdgan import PDGANTrainee

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
TINY = PDGANOptions(prior_width=2, ngf=2, z_dim=4)
ON_FILLNET = PDGANOptions(ngf=2, z_dim=4, fill_widths="4,8", fill_encoder="0,1", fill_decoder="1,1", fill_context="0,2")
Config = Callable[..., PDGANConfig]
PRIOR = {"part": "prior", "steps": 2, "batch": 1, "learning_rate": 1e-3}
DIVERSE = {"part": "diverse", "steps": 2, "batch": 1, "learning_rate": 1e-3}


def random() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def begun(config: PDGANConfig) -> PDGANTrainee:
    trainee = PDGANTrainee(config, Runtime(CPU, config.precision))
    trainee.begin_phase(config.phase[0])
    return trainee


def parts(trainee: PDGANTrainee) -> dict[str, nn.Module]:
    nets = trainee.net
    return {
        **dict(nets.prior.named_children()),
        "PDGAN": cast("nn.Module", nets.PDGAN),
        "D": trainee.discriminator,
    }


def moved(config: PDGANConfig) -> set[str]:
    """Return the nets that a step changes."""
    trainee = begun(config)
    before = {name: [value.clone() for value in net.parameters()] for name, net in parts(trainee).items()}
    trainee.step(1, position_of_step(1, config.phase))
    return {
        name
        for name, net in parts(trainee).items()
        if any(not torch.equal(*pair) for pair in zip(before[name], net.parameters(), strict=True))
    }


def test_a_phase_moves_its_own_nets_alone(pdgan_config: Config) -> None:
    assert moved(pdgan_config(phase=[PRIOR, DIVERSE])) == {"EN", "DE"}
    assert moved(pdgan_config(phase=[DIVERSE])) == {"PDGAN", "D"}
    on_fillnet = ON_FILLNET.model_dump()
    assert moved(pdgan_config(phase=[PRIOR, DIVERSE], generator=on_fillnet)) == {"net"}
    assert moved(pdgan_config(phase=[DIVERSE], generator=on_fillnet)) == {"PDGAN", "D"}


def test_processes_together_see_the_batch_and_the_latents_that_one_sees_alone(pdgan_config: Config) -> None:
    config = pdgan_config(phase=[{**DIVERSE, "batch": 2}])
    position = position_of_step(1, config.phase)

    def seen(rank: int, world: int) -> tuple[Tensor, ...]:
        trainee = PDGANTrainee(config, Runtime(CPU, "fp32", rank=rank, world=world))
        return trainee.batch(1, position)

    for whole, *shares in zip(seen(0, 1), seen(0, 2), seen(1, 2), strict=True):
        assert torch.equal(torch.cat(shares), whole)


@pytest.mark.parametrize("options", [TINY, ON_FILLNET], ids=["partial convolutions", "FillNet"])
def test_the_trained_nets_are_the_public_ones_under_the_public_keys(options: PDGANOptions) -> None:
    trained = build_nets(options, random()).eval()
    state = checkpoint_state(trained)
    assert PDGAN().recognise(state) == options
    public = PDGANNet(options)
    public.load_state_dict(PDGAN().translate(state, options).state)
    public.eval()
    image, valid = torch.rand(1, 3, 256, 256, generator=random()) * 2 - 1, torch.ones(1, 1, 256, 256)
    valid[..., 40:200, 70:180] = 0
    latent = torch.randn(1, 4, generator=random())
    with torch.no_grad():
        priors = [nets.prior(image * valid, valid) for nets in (trained, public)]
        fills = [cast("Any", nets.PDGAN)(latent, priors[0], valid) for nets in (trained, public)]
    assert torch.allclose(*priors, atol=1e-5)
    assert torch.allclose(*fills, atol=1e-4)


def test_random_weights_are_a_function_of_the_generator() -> None:
    first, same = (build_nets(TINY, random()).state_dict() for _ in range(2))
    assert [key for key in first if not torch.equal(first[key], same[key])] == []


@pytest.mark.parametrize("options", [TINY, ON_FILLNET], ids=["partial convolutions", "FillNet"])
def test_a_run_can_begin_with_given_weights(options: PDGANOptions, pdgan_config: Config, tmp_path: Path) -> None:
    given = {"generator": options.model_dump()}
    first = PDGANTrainee(pdgan_config(**given), Runtime(CPU, "fp32"))
    torch.save(first.generator_state(), tmp_path / "first.pth")
    second = PDGANTrainee(pdgan_config(**given, seed=9, initial=tmp_path / "first.pth"), Runtime(CPU, "fp32"))
    for key, tensor in checkpoint_state(first.net).items():
        if not key.endswith(("weight_u", "weight_v")):  # saved after one more iteration
            assert torch.allclose(checkpoint_state(second.net)[key], tensor, rtol=1e-6), key


def test_more_iterations_find_the_largest_singular_value() -> None:
    conv = TrainedSpectralConv(6, 5, 3, bias=False)
    nn.init.normal_(conv.weight_orig, generator=random())
    conv.weight_u.fill_(5**-0.5)
    for _ in range(200):
        weight = conv.weight()
    assert float(torch.linalg.matrix_norm(weight.detach().flatten(1), 2)) == pytest.approx(1, rel=1e-3)
    conv.eval()
    before = conv.weight_u.clone()
    conv.weight()
    assert torch.equal(conv.weight_u, before)


def test_two_fills_that_differ_more_have_the_smaller_loss() -> None:
    one, near, far = torch.zeros(2, 3, 8, 8), torch.full((2, 3, 8, 8), 0.1), torch.full((2, 3, 8, 8), 0.5)
    assert diversity_loss([one], [far]) < diversity_loss([one], [near])
    assert float(diversity_loss([one], [far])) == pytest.approx(2, rel=1e-3)


def rated(scores: Tensor) -> list[ScaleRatings]:
    return [ScaleRatings(scores, [])]


def test_hinge_asks_no_more_of_scores_that_have_passed_one() -> None:
    passed, short = torch.full((1, 1, 2, 2), 1.5), torch.full((1, 1, 2, 2), 0.25)
    assert float(hinge_loss(rated(passed), real=True)) == 0
    assert float(hinge_loss(rated(-passed), real=False)) == 0
    assert float(hinge_loss(rated(short), real=True)) == 0.75
    assert float(hinge_loss(rated(short), real=False)) == 1.25
    assert float(generator_hinge_loss(rated(short))) == -0.25


def test_in_half_precision_equal_fills_have_a_finite_diversity() -> None:
    """The usual form, one over a half-precision difference and 1e-5, is infinite in FP16 where the fills are alike."""
    fill = torch.full((1, 3, 4, 4), 0.5, dtype=torch.float16, requires_grad=True)
    other = torch.full((1, 3, 4, 4), 0.5, dtype=torch.float16)
    loss = diversity_loss([fill], [other])
    loss.backward()
    assert loss.item() == pytest.approx(1e5, rel=0.01)
    assert fill.grad is not None
    assert fill.grad.isfinite().all()
    assert not (1 / ((fill - other).abs().mean() + 1e-5)).isfinite()


def test_in_half_precision_a_score_a_little_short_of_one_still_learns() -> None:
    """The usual form takes the hinge of half-precision scores: bf16 rounds 0.999 to 1."""
    scores = torch.tensor([[[[0.999]]]], requires_grad=True)
    hinge_loss(rated(scores), real=True).backward()
    assert scores.grad is not None
    assert float(scores.grad) == -1
    naive = scores.detach().bfloat16().requires_grad_()
    (1 - naive).relu().mean().backward()
    assert naive.grad is not None
    assert float(naive.grad) == 0


def test_in_half_precision_a_pixel_that_is_nearly_white_still_learns() -> None:
    """The usual form, tanh of half-precision values, rounds to 1 above about 5, where it has no gradient."""
    nets = build_nets(TINY, random())
    seen: list[Tensor] = []

    def set_to_six(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        seen.append(torch.full_like(output, 6.0, requires_grad=True))
        return seen[-1]

    generator = cast("Any", nets.PDGAN)
    ends = (nets.prior.get_submodule("DE.Decoder_6.model.1"), generator.conv_img)
    for end in ends:
        end.register_forward_hook(set_to_six)
    valid = torch.ones(1, 1, 256, 256)
    with Runtime(CPU, "bf16").autocast():
        prior = nets.prior(torch.zeros(1, 3, 256, 256), valid)
        (prior.sum() + generator(torch.zeros(1, 4), prior.detach(), valid).sum()).backward()
    for values in seen:
        assert values.grad is not None
        assert values.grad.abs().min() > 1e-6
    naive = torch.full((1,), 6.0, dtype=torch.bfloat16, requires_grad=True)
    torch.tanh(naive).sum().backward()
    assert naive.grad is not None
    assert float(naive.grad) == 0


def test_in_half_precision_small_weights_have_a_spectral_norm() -> None:
    """The usual form multiplies in FP16, as under autocast on a GPU: there 1e-9 is 0, and 0/0 is NaN."""
    trained, naive = TrainedSpectralConv(4, 4, 1, bias=False), SpectralConv2d(4, 4, 1, bias=False)
    for conv in (trained, naive):
        conv.weight_orig.data = 1e-9 * torch.eye(4).view(4, 4, 1, 1)
        conv.weight_u.copy_(torch.full((4,), 0.5))
        conv.weight_v.copy_(torch.full((4,), 0.5))
    with torch.autocast("cpu", torch.float16):
        assert torch.allclose(trained.weight().flatten(1).float(), torch.eye(4), atol=1e-3)
    assert not naive.half().weight().isfinite().all()


def test_in_half_precision_a_wide_window_is_counted_exactly() -> None:
    """Under autocast the public layer sums 512·4² values in FP16, which above 2048 holds only even integers."""
    conv = PartialConv2d((512, 1), 4, (2, 1), bias=False)
    nn.init.ones_(conv.mask_conv.weight)
    nn.init.constant_(conv.input_conv.weight, 20.0)
    trained = TrainedPartialConv(PartialConv2d((512, 1), 4, (2, 1), bias=False))
    nn.init.constant_(trained.input_conv.weight, 20.0 / (512 * 16))  # the same function, at the scale of training
    x, mask = torch.ones(1, 512, 8, 8), torch.ones(1, 512, 8, 8)
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        assert torch.allclose(trained(x, mask)[0].float(), torch.tensor(20.0), rtol=1e-2)
        assert not conv(x, mask)[0].isfinite().all()
    assert float(avg_pool2d(mask[:, :1], 4, 2, 1).max()) == 1


def test_steps_in_half_precision_stay_finite(pdgan_config: Config) -> None:
    config = pdgan_config(precision="bf16", phase=[PRIOR, DIVERSE])
    trainee = begun(config)
    for number in (0, 2):
        position = position_of_step(number, config.phase)
        trainee.begin_phase(position.phase)
        assert all(value.isfinite() for value in trainee.step(number, position).values())


def test_a_sheet_shows_input_prior_two_fills_and_the_truth(pdgan_config: Config, photographs: Path) -> None:
    data = {"path": photographs, "validation": photographs, "load_side": 256, "crop": 256, "limit": 1}
    trainee = PDGANTrainee(pdgan_config(data={**data, "validation_limit": 1}), Runtime(CPU, "fp32"))
    torn, _prior, other, fill, truth = trainee.sheet().chunk(5, 2)
    hole = (torn == 0.5).all(0)
    assert torch.equal(fill[:, ~hole], truth[:, ~hole])
    assert not torch.equal(fill[:, hole], other[:, hole])
    assert trainee.validate().keys() == {"validation_psnr_db", "validation_ssim"}


def test_no_step_before_its_phase(pdgan_config: Config) -> None:
    config = pdgan_config()
    with pytest.raises(RuntimeError, match="begin_phase"):
        PDGANTrainee(config, Runtime(CPU, "fp32")).step(0, position_of_step(0, config.phase))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": {"path": "x", "load_side": 300, "crop": 128}}, "take 256"),
        ({"data": {"path": "x", "load_side": 256, "layout": "pairs"}}, "layout pairs"),
        ({"coverage": [0.5, 0.1]}, "coverage"),
        ({"generator": {"ngf": 1}}, "use 2 or more"),
        ({"phase": [{**DIVERSE, "perceptual": 1.0}]}, "VGG16"),
        ({"phase": [DIVERSE], "generator": {"diverse": False}}, "stage 1 alone"),
        ({"phase": [DIVERSE, PRIOR, DIVERSE]}, "put 'prior' first"),
        ({"phase": [PRIOR]}, "no phase trains the generator"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str, pdgan_config: Config) -> None:
    with pytest.raises(ValidationError, match=message):
        pdgan_config(**options)


def test_the_config_of_the_papers_sizes_trains_stage_1_first() -> None:
    config = load_config(Path(__file__).resolve().parents[3] / "training" / "configs" / "photos-diverse.toml")
    assert isinstance(config, PDGANConfig)
    assert config.generator == PDGANOptions()
    assert [phase.part for phase in config.phase] == ["prior", "diverse"]
