"""The batches, nets, augmentation and losses of a DCGAN run, and what half precision would do to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import ValidationError
from torch import Tensor, nn

from export.generators.dcgan import DCGANNet, DCGANOptions
from training.dcgan_config import DCGANConfig
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.losses.patch_gan import adversarial_loss
from training.tasks.dcgan import DCGANTrainee, Discriminator, GeneratorLosses, SpectralNorm, augment

CPU = torch.device("cpu")
Config = Callable[..., DCGANConfig]


def random() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_processes_together_see_the_batch_that_one_sees_alone(dcgan_config: Config) -> None:
    config = dcgan_config(phase=[{"steps": 4, "batch": 4, "learning_rate": 1e-3}])
    position = position_of_step(2, config.phase)
    alone = DCGANTrainee(config, Runtime(CPU, "fp32")).batch(2, position)
    shares = [DCGANTrainee(config, Runtime(CPU, "fp32", rank=rank, world=2)).batch(2, position) for rank in range(2)]
    for index, axis in enumerate((0, 0, 1)):
        assert torch.equal(torch.cat([share[index] for share in shares], axis), alone[index])
    assert alone[0].shape[1:] == (3, 64, 64)
    assert alone[0].min() >= -1


@pytest.mark.parametrize("spectral", [True, False])
@pytest.mark.parametrize("side", [64, 128])
def test_a_step_moves_both_nets(side: int, spectral: bool, dcgan_config: Config) -> None:
    data = dcgan_config().data.model_copy(update={"crop": side, "load_side": side})
    config = dcgan_config(spectral_norm=spectral, data=data, generator={"nz": 4, "ngf": 1, "side": side})
    trainee = DCGANTrainee(config, Runtime(CPU, "fp32"))
    trainee.begin_phase(config.phase[0])
    nets = (trainee.net, trainee.discriminator)
    before = [[parameter.clone() for parameter in net.parameters()] for net in nets]
    terms = trainee.step(1, position_of_step(1, config.phase))
    assert terms.keys() == {"loss", "real", "fake", "discriminator", "believed_real", "believed_fake"}
    for old, net in zip(before, nets, strict=True):
        assert any(not torch.equal(one, other) for one, other in zip(old, net.parameters(), strict=True))


def test_the_discriminator_has_a_score_a_picture_and_norms_only_without_spectral_norm() -> None:
    for spectral, norms in ((True, 0), (False, 3)):
        net = Discriminator(4, 4, random(), spectral=spectral)
        assert net(torch.zeros(2, 3, 64, 64)).shape == (2,)
        assert sum(isinstance(module, nn.BatchNorm2d) for module in net.modules()) == norms


def test_a_spectral_norm_divides_by_the_largest_singular_value() -> None:
    weight = torch.randn(8, 6, 4, 4, generator=random())
    norm = SpectralNorm(weight, random())
    for _ in range(100):
        scaled = norm(weight)
    assert torch.linalg.matrix_norm(scaled.flatten(1), 2).item() == pytest.approx(1, abs=1e-3)


def test_a_resting_spectral_norm_keeps_its_vector() -> None:
    weight = torch.randn(8, 6, generator=random())
    norm = SpectralNorm(weight, random()).eval()
    before = norm.u.clone()
    norm(weight)
    assert torch.equal(norm.u, before)


def test_in_half_precision_the_power_iteration_does_not_underflow() -> None:
    """The usual form multiplies in half precision, as under autocast on a GPU: products of small weights are 0."""
    weight = torch.randn(16, 64, generator=random()) * 1e-8
    norm = SpectralNorm(weight, random())
    with torch.autocast("cpu", torch.float16):
        for _ in range(20):
            found = norm(weight)
    assert torch.linalg.matrix_norm(found.float(), 2).item() == pytest.approx(1, abs=0.05)
    half, u = weight.half(), F.normalize(torch.randn(16, generator=random()), dim=0).half()
    v = F.normalize(half.t() @ u, dim=0)
    naive = weight / torch.dot(u, half @ v)
    assert not naive.isfinite().all()


@pytest.mark.parametrize(("half", "score"), [(torch.float16, -18.0), (torch.bfloat16, 8.0)])
def test_in_half_precision_every_score_has_a_finite_loss_and_a_gradient(half: torch.dtype, score: float) -> None:
    """The usual form, cross entropy of a sigmoid in half precision, has no gradient where that rounds to 0 or 1."""
    wanted = score < 0

    def gradient(loss: Callable[[Tensor], Tensor]) -> float:
        scores = torch.tensor([score], dtype=half, requires_grad=True)
        loss(scores).backward()
        assert scores.grad is not None
        return abs(float(scores.grad))

    assert gradient(lambda scores: adversarial_loss(scores, "vanilla", real=wanted)) > 0.9
    target = torch.full((1,), float(wanted), dtype=half)
    assert not gradient(lambda scores: F.binary_cross_entropy(scores.sigmoid(), target)) > 0.5


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_half_precision_a_pixel_that_is_nearly_white_still_learns(precision: Any) -> None:
    """The usual form, tanh of half-precision values, rounds to 1 above about 4, where the gradient of tanh is 0."""
    net = DCGANNet(DCGANOptions(nz=2, ngf=1))
    losses = GeneratorLosses(net, nn.Flatten(), augmented=False)
    nearly_white: list[Tensor] = []

    def set_to_five(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        nearly_white.append(torch.full_like(output, 5.0, requires_grad=True))
        return nearly_white[0]

    losses.layers[-1].register_forward_hook(set_to_five)
    with Runtime(CPU, precision).autocast():
        output, _ = losses(torch.ones(2, 2), torch.zeros(2, 7))
    output.sum().backward()
    values = nearly_white[0]
    assert values.dtype in (torch.bfloat16, torch.float16)
    assert values.grad is not None
    assert values.grad.abs().min() > 1e-5
    naive = torch.full((1,), 5.0, dtype=values.dtype, requires_grad=True)
    torch.tanh(naive).sum().backward()
    assert naive.grad is not None
    assert float(naive.grad) == 0


def test_no_augmentation_but_the_square_at_middling_numbers() -> None:
    pictures = torch.rand(2, 3, 16, 16, generator=random()) * 2 - 1
    found = augment(pictures, torch.full((2, 7), 0.5))
    inside = torch.zeros(16, 16, dtype=torch.bool)
    inside[5:12, 5:12] = True
    assert torch.allclose(found[..., ~inside], pictures[..., ~inside], atol=1e-5)
    assert not found[..., inside].any()


def test_augmentation_shifts_each_picture_by_its_own_numbers() -> None:
    pictures = torch.rand(2, 3, 16, 16, generator=random())
    numbers = torch.full((2, 7), 0.5)
    numbers[0, 3], numbers[1, 4] = 0.99, 0.0
    numbers[:, 5:] = torch.tensor([0.99, 0.0])
    found = augment(pictures, numbers)
    assert torch.allclose(found[0, :, 2:10, 6:], pictures[0, :, :8, 6:], atol=1e-5)
    assert torch.allclose(found[1, :, :10, 6:14], pictures[1, :, :10, 8:], atol=1e-5)
    assert not found[1, :, :, 14:].any()


def test_a_pair_is_trained_on_as_its_target(dcgan_config: Config, pairs: Path) -> None:
    data = {"path": pairs, "layout": "pairs", "direction": "BtoA", "load_side": 64, "crop": 64, "flip": False}
    config = dcgan_config(data=data)
    real = DCGANTrainee(config, Runtime(CPU, "fp32")).batch(0, position_of_step(0, config.phase))[0]
    grey = (real[:, 0] == real[:, 1]).all()
    assert not grey  # the inputs, edges, are grey


def test_a_run_can_begin_with_given_weights(dcgan_config: Config, tmp_path: Path) -> None:
    first = DCGANTrainee(dcgan_config(), Runtime(CPU, "fp32"))
    torch.save(first.generator_state(), tmp_path / "first.pth")
    second = DCGANTrainee(dcgan_config(seed=9, initial=tmp_path / "first.pth"), Runtime(CPU, "fp32"))
    for key, tensor in first.net.state_dict().items():
        assert torch.equal(second.net.state_dict()[key], tensor), key


def test_a_sheet_is_a_square_of_pictures_and_the_same_every_time(dcgan_config: Config) -> None:
    trainee = DCGANTrainee(dcgan_config(sheet_pictures=3), Runtime(CPU, "fp32"))
    sheet = trainee.sheet()
    assert sheet.shape == (3, 192, 192)
    assert torch.equal(trainee.sheet(), sheet)
    assert trainee.validate() == {}


def test_no_step_before_its_phase(dcgan_config: Config) -> None:
    config = dcgan_config()
    with pytest.raises(RuntimeError, match="begin_phase"):
        DCGANTrainee(config, Runtime(CPU, "fp32")).step(0, position_of_step(0, config.phase))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator": {"side": 128}}, "make them equal"),
        ({"generator": {"nc": 1}}, "RGB"),
        ({"phase": [{"steps": 1, "batch": 1, "learning_rate": 1e-3}]}, "larger batch"),
        ({"data": {"path": "x", "load_side": 64, "crop": 64, "validation": "y"}}, "no truth"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str, dcgan_config: Config) -> None:
    with pytest.raises(ValidationError, match=message):
        dcgan_config(**options)
