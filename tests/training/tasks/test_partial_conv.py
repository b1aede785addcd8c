"""The batches and losses of a partial-convolution run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from training.config import PConvConfig
from training.errors import CheckpointMismatch
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.losses.hole_discriminator import HoleDiscriminator
from training.losses.lpips_distance import Lpips
from training.losses.vgg16 import VGG16Features
from training.tasks.partial_conv import PartialLosses, PartialTrainee

CPU = torch.device("cpu")
PHOTOGRAPHS = Path(__file__).resolve().parents[2] / "data"
Config = Callable[..., PConvConfig]


@pytest.fixture
def mask_folder(tmp_path: Path) -> Path:
    mask = np.zeros((32, 32), np.uint8)
    mask[10:20, 5:25] = 255
    (tmp_path / "masks").mkdir()
    cv2.imwrite(str(tmp_path / "masks" / "1.png"), mask)
    return tmp_path / "masks"


def weighing_alike() -> Lpips:
    """Make LPIPS with random features and equal channel weights."""
    made = Lpips()
    for head in made.heads:
        torch.nn.init.ones_(head)
    return made


def test_processes_together_see_the_batch_that_one_sees_alone(partial_config: Config, mask_folder: Path) -> None:
    masks = {"folder": mask_folder, "folder_share": 0.5}
    config = partial_config(masks=masks, phase=[{"steps": 4, "batch": 6, "learning_rate": 1e-3}])
    position = position_of_step(2, config.phase)
    image, hole = PartialTrainee(config, Runtime(CPU, "fp32")).batch(2, position)
    shares = [PartialTrainee(config, Runtime(CPU, "fp32", rank=rank, world=3)).batch(2, position) for rank in range(3)]
    assert torch.equal(torch.cat([share[0] for share in shares]), image)
    assert torch.equal(torch.cat([share[1] for share in shares]), hole)
    assert image.shape == (6, 3, 32, 32)
    assert hole.shape == (6, 1, 32, 32)


def test_steps_differ_in_pictures_and_holes(partial_config: Config) -> None:
    config = partial_config()
    trainee = PartialTrainee(config, Runtime(CPU, "fp32"))
    first, second = (trainee.batch(number, position_of_step(number, config.phase)) for number in (0, 1))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


def test_losses_with_a_weight_are_computed_and_summed_with_it(partial_config: Config) -> None:
    weights = {"hole": 6.0, "valid": 1.0, "log_mse": 0.1, "perceptual": 0.05, "style": 10.0, "total_variation": 0.2}
    weights |= {"weave": 0.5, "directed": 0.3, "lpips": 0.7, "adversarial": 0.4}
    phase = {"steps": 1, "batch": 2, "learning_rate": 1e-3, "features_of_output": True} | weights
    config = partial_config(phase=[phase], features="unused.safetensors", lpips_features="unused.safetensors")
    trainee = PartialTrainee(partial_config(), Runtime(CPU, "fp32"))
    image, hole = trainee.batch(0, position_of_step(0, partial_config().phase))
    losses = PartialLosses(trainee.net, VGG16Features(), config.phase[0], HoleDiscriminator(4, 2), weighing_alike())
    composite, terms = losses(image, hole)
    assert torch.equal(composite * (1 - hole), image * (1 - hole))
    assert terms.keys() == weights.keys() | {"loss"}
    assert terms["loss"].item() == pytest.approx(sum(weights[name] * terms[name].item() for name in weights), rel=1e-5)
    _, plain = PartialLosses(trainee.net, None, partial_config().phase[0])(image, hole)
    assert plain.keys() == {"hole", "valid", "loss"}


def test_features_are_taken_of_pictures_rolled_by_the_shift(partial_config: Config) -> None:
    phase = {"steps": 1, "batch": 2, "learning_rate": 1e-3, "directed": 1.0, "perceptual": 1.0, "lpips": 1.0}
    config = partial_config(phase=[phase], features="unused.safetensors", lpips_features="unused.safetensors")
    trainee = PartialTrainee(partial_config(), Runtime(CPU, "fp32"))
    image, hole = trainee.batch(0, position_of_step(0, partial_config().phase))
    losses = PartialLosses(trainee.net, VGG16Features(), config.phase[0], lpips=weighing_alike())
    still, moved, round_trip = (
        losses(image, hole, shift)[1] for shift in (None, torch.tensor([3, 5]), torch.tensor([32, 64]))
    )
    for name in ("directed", "perceptual", "lpips"):
        assert round_trip[name].item() == pytest.approx(still[name].item(), rel=1e-5)
        assert moved[name].item() != pytest.approx(still[name].item(), rel=1e-5)
        assert moved[name].item() == pytest.approx(still[name].item(), rel=0.5)
    assert moved["hole"].item() == still["hole"].item()


def test_a_phase_with_lpips_reads_alexnet_and_one_without_leaves_it_out(partial_config: Config, tmp_path: Path) -> None:
    state = {key: tensor for key, tensor in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    shared = {"steps": 1, "batch": 2, "learning_rate": 1e-3}
    config = partial_config(
        phase=[shared, shared | {"lpips": 1.0}],
        lpips_features=tmp_path / "alexnet.safetensors",
        data={"path": str(PHOTOGRAPHS), "load_side": 64, "crop": 64, "threads": 1},
    )
    trainee = PartialTrainee(config, Runtime(CPU, "fp32"))
    for number in range(2):
        position = position_of_step(number, config.phase)
        trainee.begin_phase(position.phase)
        assert ("lpips" in trainee.step(number, position)) == bool(number)


def test_a_phase_freezes_the_norms_that_it_names(partial_config: Config) -> None:
    phase = {"steps": 1, "batch": 2, "learning_rate": 1e-3, "freeze_encoder_norm": True, "freeze_decoder_norm": True}
    config = partial_config(phase=[phase])
    trainee = PartialTrainee(config, Runtime(CPU, "fp32"))
    before = {key: tensor.clone() for key, tensor in trainee.net.state_dict().items()}
    position = position_of_step(0, config.phase)
    trainee.begin_phase(position.phase)
    trainee.step(0, position)
    for key, tensor in trainee.net.state_dict().items():
        if "running" in key:
            assert torch.equal(tensor, before[key]), key


def test_a_phase_without_an_adversary_leaves_the_discriminator_alone(partial_config: Config) -> None:
    shared = {"steps": 1, "batch": 2, "learning_rate": 1e-3}
    config = partial_config(
        phase=[shared, shared | {"adversarial": 0.1}], discriminator_width=4, discriminator_layers=2
    )
    trainee = PartialTrainee(config, Runtime(CPU, "fp32"))
    assert trainee.judge is not None
    before = {key: tensor.clone() for key, tensor in trainee.judge.state_dict().items()}
    changed = []
    for number in range(2):
        position = position_of_step(number, config.phase)
        trainee.begin_phase(position.phase)
        terms = trainee.step(number, position)
        assert ("discriminator" in terms) == ("adversarial" in terms) == bool(number)
        changed.append(any(not torch.equal(tensor, before[key]) for key, tensor in trainee.judge.state_dict().items()))
    assert changed == [False, True]


def test_a_trainee_with_a_discriminator_goes_on_from_its_state(partial_config: Config) -> None:
    phase = {"steps": 2, "batch": 2, "learning_rate": 1e-3, "adversarial": 0.1}
    config = partial_config(phase=[phase], discriminator_width=4, discriminator_layers=2)
    first, second = (PartialTrainee(config, Runtime(CPU, "fp32")) for _ in range(2))
    for trainee in (first, second):
        trainee.begin_phase(config.phase[0])
    first.step(0, position_of_step(0, config.phase))
    second.load(copy.deepcopy(first.state()))
    ours, theirs = (trainee.step(1, position_of_step(1, config.phase)) for trainee in (first, second))
    assert {name: value.item() for name, value in ours.items()} == {
        name: value.item() for name, value in theirs.items()
    }
    assert first.judge is not None
    assert second.judge is not None
    for key, tensor in first.judge.state_dict().items():
        assert torch.equal(tensor, second.judge.state_dict()[key]), key


def test_no_step_before_its_phase(partial_config: Config) -> None:
    config = partial_config()
    with pytest.raises(RuntimeError, match="begin_phase"):
        PartialTrainee(config, Runtime(CPU, "fp32")).step(0, position_of_step(0, config.phase))


def test_a_run_can_begin_with_given_weights(partial_config: Config, tmp_path: Path) -> None:
    first = PartialTrainee(partial_config(), Runtime(CPU, "fp32"))
    torch.save(first.generator_state(), tmp_path / "first.pth")
    second = PartialTrainee(partial_config(seed=9, initial=tmp_path / "first.pth"), Runtime(CPU, "fp32"))
    for key, tensor in first.net.state_dict().items():
        assert torch.allclose(second.net.state_dict()[key], tensor), key


def test_weights_of_another_width_are_refused(partial_config: Config, tmp_path: Path) -> None:
    other = PartialTrainee(partial_config(generator={"levels": 3, "width": 8}), Runtime(CPU, "fp32"))
    torch.save(other.generator_state(), tmp_path / "other.pth")
    for path, message in ((tmp_path / "other.pth", "levels and widths"), (tmp_path / "absent.pth", "absent")):
        with pytest.raises(CheckpointMismatch, match=message):
            PartialTrainee(partial_config(initial=path), Runtime(CPU, "fp32"))
