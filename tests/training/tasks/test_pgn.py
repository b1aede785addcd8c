"""The batches, targets, nets and losses of a PGN run, and what half precision would do to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from export.generators.pgn import FILL, PGN, CentreHoleContract, PGNNet, PGNOptions
from training.config import load_config
from training.errors import ConfigInvalid
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.pgn_config import PGNConfig
from training.tasks.pgn import (
    FromOnePixel,
    PGNTrainee,
    ShrinkingHole,
    StageDiscriminator,
    WideCell,
    build_generator,
    generator_gan_loss,
    roughness,
)

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[3]
Config = Callable[..., PGNConfig]


def random() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def begun(config: PGNConfig) -> PGNTrainee:
    trainee = PGNTrainee(config, Runtime(CPU, config.precision))
    trainee.begin_phase(config.phase[0])
    return trainee


def test_processes_together_see_the_batch_that_one_sees_alone(pgn_config: Config) -> None:
    config = pgn_config(phase=[{"steps": 4, "batch": 4, "learning_rate": 1e-3}])
    position = position_of_step(2, config.phase)
    (alone,) = PGNTrainee(config, Runtime(CPU, "fp32")).batch(2, position)
    shares = [PGNTrainee(config, Runtime(CPU, "fp32", rank=rank, world=2)).batch(2, position) for rank in range(2)]
    assert torch.equal(torch.cat([image for (image,) in shares]), alone)
    assert alone.shape == (4, 3, 128, 128)


@pytest.mark.parametrize(("stages", "sides"), [(2, [64, 32, 0]), (4, [64, 48, 32, 16, 0])])
def test_the_hole_shrinks_from_stage_to_stage_until_nothing_is_left_of_it(stages: int, sides: list[int]) -> None:
    image = torch.rand(1, 3, 128, 128, generator=random())
    for target, side in zip(ShrinkingHole(stages)(image), sides, strict=True):
        wanted, edge = image.clone(), (128 - side) // 2
        wanted[..., edge : 128 - edge, edge : 128 - edge] = torch.tensor(FILL).view(3, 1, 1)
        assert torch.equal(target, wanted if side else image)


def test_the_net_is_trained_on_what_the_served_model_shows_it() -> None:
    image = torch.rand(1, 3, 128, 128, generator=random())
    served = CentreHoleContract(nn.Identity())(image, torch.zeros(1, 1, 128, 128))
    assert torch.allclose(ShrinkingHole(4)(image)[0], served)


@pytest.mark.parametrize("stages", [2, 4])
def test_a_step_moves_every_stage_the_cell_and_every_discriminator(stages: int, pgn_config: Config) -> None:
    config = pgn_config(generator={"stages": stages, "width": 2})
    trainee = begun(config)
    nets = [*trainee.net.children(), *trainee.discriminator]
    before = [[parameter.clone() for parameter in net.parameters()] for net in nets]
    terms = trainee.step(1, position_of_step(1, config.phase))
    assert terms.keys() == {
        *("l1", "l2", "total_variation", "adversarial", "loss"),
        *("real", "fake", "discriminator"),
    }
    assert len(nets) == 2 * stages + 1
    for old, net in zip(before, nets, strict=True):
        assert any(not torch.equal(one, other) for one, other in zip(old, net.parameters(), strict=True))


def test_without_adversarial_no_discriminator_is_trained(pgn_config: Config) -> None:
    config = pgn_config(phase=[{"steps": 2, "batch": 2, "learning_rate": 1e-3, "adversarial": 0.0}])
    trainee = begun(config)
    before = [parameter.clone() for parameter in trainee.discriminator.parameters()]
    assert "discriminator" not in trainee.step(0, position_of_step(0, config.phase))
    assert all(torch.equal(*pair) for pair in zip(before, trainee.discriminator.parameters(), strict=True))


def test_losses_are_sums_over_the_stages_by_their_weights(pgn_config: Config) -> None:
    weights = {"l1": 2.0, "l2": 3.0, "total_variation": 5.0, "adversarial": 7.0}
    config = pgn_config(phase=[{"steps": 2, "batch": 2, "learning_rate": 1e-3} | weights])
    trainee = begun(config)
    position = position_of_step(0, config.phase)
    (image,) = trainee.batch(0, position)
    painted, *targets = ShrinkingHole(2)(image)
    pictures = build_generator(config.generator, random())
    pictures.load_state_dict(trainee.net.state_dict())
    with torch.no_grad():
        made = pictures.pictures(painted)
    terms = trainee.step(0, position)
    assert float(terms["l1"]) == pytest.approx(
        float(sum((one - target).abs().mean() for one, target in zip(made, targets, strict=True))), rel=1e-4
    )
    assert float(terms["total_variation"]) == pytest.approx(float(sum(map(roughness, made))), rel=1e-4)
    total = sum(weight * float(terms[name]) for name, weight in weights.items())
    assert float(terms["loss"]) == pytest.approx(total, rel=1e-4)


def test_the_trained_net_is_the_public_one_under_the_public_keys() -> None:
    options = PGNOptions(stages=4, width=2)
    trained = build_generator(options, random()).eval()
    public = PGNNet(options).eval()
    public.load_state_dict(trained.state_dict())
    assert PGN().recognise(trained.state_dict()) == options
    x = torch.rand(2, 3, 128, 128, generator=random())
    with torch.no_grad():
        assert torch.allclose(trained(x), public(x), atol=1e-5)


def test_the_layer_above_the_bottleneck_is_the_transposed_convolution_of_one_pixel() -> None:
    layer = nn.ConvTranspose2d(5, 3, 4, 2, 1, bias=False)
    x = torch.randn(2, 5, 1, 1, generator=random())
    assert torch.allclose(FromOnePixel(layer)(x), layer(x), atol=1e-6)


def test_random_weights_are_a_function_of_the_generator() -> None:
    first, same = (build_generator(PGNOptions(stages=2, width=2), random()).state_dict() for _ in range(2))
    assert [key for key in first if not torch.equal(first[key], same[key])] == []
    assert float(first["rnn.weight_hh"].abs().max()) <= 32**-0.5


def test_a_discriminator_has_31_by_31_scores() -> None:
    assert StageDiscriminator(2)(torch.zeros(2, 3, 128, 128)).shape == (2, 1, 31, 31)


@pytest.mark.parametrize("gan", ["minimax", "vanilla"])
def test_pictures_that_look_real_have_the_smaller_loss(gan: Literal["minimax", "vanilla"]) -> None:
    assert generator_gan_loss(torch.tensor([3.0]), gan) < generator_gan_loss(torch.tensor([-3.0]), gan)


@pytest.mark.parametrize(("half", "score"), [(torch.float16, 18.0), (torch.bfloat16, 8.0)])
def test_in_half_precision_a_deceived_discriminator_still_has_a_finite_loss(half: torch.dtype, score: float) -> None:
    """The usual form of minimax, log(1 - sigmoid) in half precision, is log 0 where the sigmoid rounds to 1."""
    scores = torch.tensor([score], dtype=half, requires_grad=True)
    loss = generator_gan_loss(scores, "minimax")
    loss.backward()
    assert loss.item() == pytest.approx(-score, rel=0.01)
    assert scores.grad is not None
    assert float(scores.grad) == pytest.approx(-1, abs=0.01)
    assert not torch.log(1 - torch.sigmoid(scores)).isfinite().all()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_half_precision_a_pixel_that_is_nearly_white_still_learns(precision: Any) -> None:
    """The usual form, a sigmoid of half-precision values, rounds to 1 above about 8, where it has no gradient."""
    net = build_generator(PGNOptions(stages=2, width=2), random())
    last = net.get_submodule("unet_2.end.2")
    nearly_white: list[Tensor] = []

    def set_to_nine(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        nearly_white.append(torch.full_like(output, 9.0, requires_grad=True))
        return nearly_white[0]

    last.register_forward_hook(set_to_nine)
    with Runtime(CPU, precision).autocast():
        net(torch.rand(2, 3, 128, 128, generator=random())).sum().backward()
    values = nearly_white[0]
    assert values.dtype in (torch.bfloat16, torch.float16)
    assert values.grad is not None
    assert values.grad.abs().min() > 1e-5
    naive = torch.full((1,), 9.0, dtype=values.dtype, requires_grad=True)
    torch.sigmoid(naive).sum().backward()
    assert naive.grad is not None
    assert float(naive.grad) == 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_half_precision_a_gate_that_is_nearly_open_still_learns(precision: Any) -> None:
    """The usual form, torch's cell under autocast, rounds its gates to 1, where they have no gradient."""

    def gradient(cell: nn.LSTMCell) -> float:
        for parameter in cell.parameters():
            nn.init.zeros_(parameter)
        nn.init.constant_(cell.bias_ih, 9.0)
        with Runtime(CPU, precision).autocast():
            memory, _ = cell(torch.ones(2, 3))
        memory.float().sum().backward()
        return float(cell.bias_ih.grad.abs().max()) if cell.bias_ih.grad is not None else 0.0

    assert gradient(WideCell(3, 4)) > 1e-5
    assert not gradient(nn.LSTMCell(3, 4)) > 1e-5


def test_in_half_precision_faint_texture_has_a_roughness() -> None:
    """The usual form squares half-precision differences: below about 2e-4 the squares are 0 in FP16."""
    picture = (torch.arange(16.0) % 2 * 1e-4).expand(1, 3, 16, 16).half()
    assert roughness(picture).item() == pytest.approx(1e-8, rel=0.01)
    assert not (picture[..., 1:] - picture[..., :-1]).square().mean()


def test_a_run_can_begin_with_given_weights(pgn_config: Config, tmp_path: Path) -> None:
    first = PGNTrainee(pgn_config(), Runtime(CPU, "fp32"))
    torch.save(first.generator_state(), tmp_path / "first.pth")
    second = PGNTrainee(pgn_config(seed=9, initial=tmp_path / "first.pth"), Runtime(CPU, "fp32"))
    for key, tensor in first.net.state_dict().items():
        assert torch.equal(second.net.state_dict()[key], tensor), key


def test_a_sheet_shows_the_input_every_stage_the_filled_picture_and_the_truth(
    pgn_config: Config, photographs: Path
) -> None:
    data = {"path": photographs, "validation": photographs, "load_side": 128, "crop": 128, "limit": 2}
    trainee = PGNTrainee(pgn_config(data=data), Runtime(CPU, "fp32"))
    assert trainee.sheet().shape == (3, 2 * 128, 5 * 128)
    painted, _first, last, filled, truth = trainee.sheet()[:, :128].chunk(5, 2)
    assert torch.equal(filled[:, 32:96, 32:96], last[:, 32:96, 32:96])
    assert torch.equal(filled[:, :32], truth[:, :32])
    assert torch.equal(painted[:, :32], truth[:, :32])
    assert trainee.validate().keys() == {"validation_psnr_db", "validation_ssim"}


def test_no_step_before_its_phase(pgn_config: Config) -> None:
    config = pgn_config()
    with pytest.raises(RuntimeError, match="begin_phase"):
        PGNTrainee(config, Runtime(CPU, "fp32")).step(0, position_of_step(0, config.phase))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": {"path": "x", "load_side": 256}}, "take 128"),
        ({"data": {"path": "x", "load_side": 128, "crop": 128, "layout": "pairs"}}, "layout pairs"),
        ({"phase": [{"steps": 1, "batch": 2, "learning_rate": 1e-3, "l1": 0.0}]}, "l1 and l2"),
        ({"generator": {"stages": 3}}, "stages"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], message: str, pgn_config: Config) -> None:
    with pytest.raises(ValidationError, match=message):
        pgn_config(**given)


@pytest.mark.parametrize(("world", "batch", "needed"), [(1, 1, "use 2 or more"), (2, 2, "use 4 or more")])
def test_a_batch_that_leaves_a_process_one_picture_is_refused_before_the_data_are_read(
    world: int, batch: int, needed: str, pgn_config: Config
) -> None:
    data = {"path": "not there", "load_side": 128, "crop": 128}
    config = pgn_config(data=data, phase=[{"steps": 1, "batch": batch, "learning_rate": 1e-3}])
    with pytest.raises(ConfigInvalid, match=needed):
        PGNTrainee(config, Runtime(CPU, "fp32", world=world))


def test_the_shipped_config_is_the_public_scripts_net() -> None:
    config = load_config(ROOT / "training" / "configs" / "photos-centre.toml")
    assert isinstance(config, PGNConfig)
    assert (config.generator, config.phase[0].batch) == (PGNOptions(stages=4, width=64), 16)
