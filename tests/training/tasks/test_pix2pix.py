"""The batches, nets and losses of a pix2pix run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from training.config import Pix2PixConfig
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.tasks.pix2pix import Pix2PixTrainee, build_generator

CPU = torch.device("cpu")
Config = Callable[..., Pix2PixConfig]


def test_processes_together_see_the_batch_that_one_sees_alone(pix2pix_config: Config) -> None:
    config = pix2pix_config(phase=[{"steps": 4, "batch": 4, "learning_rate": 1e-3}])
    position = position_of_step(2, config.phase)
    source, target = Pix2PixTrainee(config, Runtime(CPU, "fp32")).batch(2, position)
    shares = [Pix2PixTrainee(config, Runtime(CPU, "fp32", rank=rank, world=2)).batch(2, position) for rank in range(2)]
    assert torch.equal(torch.cat([share[0] for share in shares]), source)
    assert torch.equal(torch.cat([share[1] for share in shares]), target)
    assert source.min() >= -1
    assert not torch.equal(source, target)


@pytest.mark.parametrize(("net", "places"), [("unet_128", 2), ("unet_256", 3), ("resnet_6blocks", 6)])
def test_dropout_is_where_upstream_has_it_and_moves_no_key_of_a_unet(net: str, places: int) -> None:
    options = Pix2PixOptions.model_validate({"net": net, "ngf": 2, "dropout": True})
    made = build_generator(options)
    assert sum(isinstance(module, nn.Dropout) for module in made.modules()) == places
    assert made.state_dict().keys() == Pix2Pix().build(options).state_dict().keys()


@pytest.mark.parametrize("gan", ["vanilla", "lsgan"])
def test_a_step_moves_both_nets(gan: str, pix2pix_config: Config) -> None:
    config = pix2pix_config(gan=gan)
    trainee = Pix2PixTrainee(config, Runtime(CPU, "fp32"))
    trainee.begin_phase(config.phase[0])
    before = [next(net.parameters()).clone() for net in (trainee.net, trainee.discriminator)]
    terms = trainee.step(0, position_of_step(0, config.phase))
    assert terms.keys() == {"l1", "adversarial", "loss", "real", "fake", "discriminator"}
    after = [next(net.parameters()) for net in (trainee.net, trainee.discriminator)]
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_without_an_adversary_the_discriminator_rests(pix2pix_config: Config) -> None:
    config = pix2pix_config(phase=[{"steps": 1, "batch": 2, "learning_rate": 1e-3, "adversarial": 0.0}])
    trainee = Pix2PixTrainee(config, Runtime(CPU, "fp32"))
    trainee.begin_phase(config.phase[0])
    before = next(trainee.discriminator.parameters()).clone()
    assert trainee.step(0, position_of_step(0, config.phase)).keys() == {"l1", "loss"}
    assert torch.equal(next(trainee.discriminator.parameters()), before)


def test_no_step_before_its_phase(pix2pix_config: Config) -> None:
    config = pix2pix_config()
    with pytest.raises(RuntimeError, match="begin_phase"):
        Pix2PixTrainee(config, Runtime(CPU, "fp32")).step(0, position_of_step(0, config.phase))


def test_a_run_can_begin_with_given_weights(pix2pix_config: Config, tmp_path: Path) -> None:
    first = Pix2PixTrainee(pix2pix_config(), Runtime(CPU, "fp32"))
    torch.save(first.generator_state(), tmp_path / "first.pth")
    second = Pix2PixTrainee(pix2pix_config(seed=9, initial=tmp_path / "first.pth"), Runtime(CPU, "fp32"))
    for key, tensor in first.net.state_dict().items():
        assert torch.equal(second.net.state_dict()[key], tensor), key
