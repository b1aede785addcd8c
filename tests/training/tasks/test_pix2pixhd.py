"""The batches, nets, phases and losses of a pix2pixHD run, and what half precision would do to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from export.generators.pix2pixhd.generator import Pix2PixHD
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from training.data.label_maps import FACADE_COLOURS
from training.fit import fit
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.losses.vgg16 import VGG16Features
from training.pix2pixhd_config import Pix2PixHDConfig
from training.tasks.pix2pixhd import Pix2PixHDTrainee, TrainedGenerator, perceptual_loss

CPU = torch.device("cpu")
Config = Callable[..., Pix2PixHDConfig]
LOCAL = {"net": "local", "label_nc": 13, "ngf": 2, "downsamplings": 2, "blocks": 1, "local_blocks": 1}
PHASE = {"steps": 2, "batch": 2, "learning_rate": 1e-3}


def trainee_of(config: Pix2PixHDConfig) -> Pix2PixHDTrainee:
    trainee = Pix2PixHDTrainee(config, Runtime(CPU, config.precision))
    trainee.begin_phase(config.phase[0])
    return trainee


def changed(before: dict[str, Tensor], net: nn.Module) -> set[str]:
    return {key for key, tensor in net.state_dict().items() if not torch.equal(before[key], tensor)}


def test_processes_together_see_the_batch_that_one_sees_alone(pix2pixhd_config: Config) -> None:
    config = pix2pixhd_config(phase=[PHASE | {"batch": 4}])
    position = position_of_step(1, config.phase)
    alone = Pix2PixHDTrainee(config, Runtime(CPU, "fp32")).batch(1, position)
    shares = [
        Pix2PixHDTrainee(config, Runtime(CPU, "fp32", rank=rank, world=2)).batch(1, position) for rank in range(2)
    ]
    for index in range(3):
        assert torch.equal(torch.cat([share[index] for share in shares]), alone[index])


def test_the_input_is_what_the_exported_model_makes_of_ids(pix2pixhd_config: Config) -> None:
    config = pix2pixhd_config(
        data={"path": pix2pixhd_config().data.path, "layout": "facades", "direction": "BtoA"}
        | {"load_side": 64, "crop": 64, "flip": False}
    )
    trainee = trainee_of(config)
    planes, target, instances = trainee.batch(0, position_of_step(0, config.phase))
    assert planes.shape == (2, 14, 64, 64)
    assert torch.equal(planes[:, :-1].sum(1), torch.ones(2, 64, 64))
    labels = planes[:, :-1].argmax(1, keepdim=True).to(torch.uint8)
    family, seen = Pix2PixHD(), list[Tensor]()
    wrapped = family.wrap(trainee.net.net, config.generator)
    trainee.net.net.register_forward_pre_hook(lambda _net, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        output = wrapped(labels, labels.int())  # edges between labels are edges between their connected parts
        assert torch.allclose(output, trainee.net(planes, target, instances) / 2 + 0.5)
    assert torch.equal(seen[0], planes)
    assert target.min() >= -1
    assert target.max() > 0


def test_a_step_moves_both_nets(pix2pixhd_config: Config) -> None:
    trainee = trainee_of(pix2pixhd_config())
    before = [next(net.parameters()).clone() for net in (trainee.net, trainee.discriminator)]
    terms = trainee.step(0, position_of_step(0, pix2pixhd_config().phase))
    assert terms.keys() == {"adversarial", "matching", "l1", "loss", "real", "fake", "discriminator"}
    after = [next(net.parameters()) for net in (trainee.net, trainee.discriminator)]
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_loss_is_the_weighted_sum_of_its_terms(pix2pixhd_config: Config) -> None:
    config = pix2pixhd_config(phase=[PHASE | {"adversarial": 0.5, "matching": 3.0, "l1": 7.0}])
    terms = trainee_of(config).step(0, position_of_step(0, config.phase))
    wanted = 0.5 * terms["adversarial"] + 3 * terms["matching"] + 7 * terms["l1"]
    assert terms["loss"].item() == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize(("part", "moves"), [("global", {"model", "head"}), ("local", {"model1_1", "model1_2"})])
def test_a_phase_trains_its_part_of_a_local_net_alone(part: str, moves: set[str], pix2pixhd_config: Config) -> None:
    config = pix2pixhd_config(generator=LOCAL, phase=[PHASE | {"part": part}])
    trainee = trainee_of(config)
    before = {key: tensor.clone() for key, tensor in trainee.net.state_dict().items()}
    trainee.step(0, position_of_step(0, config.phase))
    assert {key.removeprefix("net.").split(".")[0] for key in changed(before, trainee.net)} == moves


def test_phases_of_a_local_net_follow_each_other(pix2pixhd_config: Config) -> None:
    phases = [PHASE | {"part": part} for part in ("global", "local", "both")]
    config = pix2pixhd_config(generator=LOCAL, phase=phases)
    trainee = trainee_of(config)
    for number, position in enumerate(position_of_step(step, config.phase) for step in range(6)):
        if position.step == 0:
            trainee.begin_phase(position.phase)
            assert trainee.sheet().shape == (3, 2 * 32, 3 * 32)
        before = {key: tensor.clone() for key, tensor in trainee.net.state_dict().items()}
        trainee.step(number, position)
    assert {key.split(".")[1] for key in changed(before, trainee.net)} == {"model", "model1_1", "model1_2"}
    assert Pix2PixHD().recognise(trainee.generator_state()) == config.generator


def test_a_local_net_that_is_stopped_in_any_phase_goes_on_to_the_same_weights(
    pix2pixhd_config: Config, tmp_path: Path
) -> None:
    phases = [PHASE | {"part": part} for part in ("global", "local", "both")]
    unbroken, cut = (
        pix2pixhd_config(generator=LOCAL, phase=phases, output=tmp_path / name) for name in ("unbroken", "cut")
    )
    ends = [fit(config, Runtime(CPU, "fp32"), stop_after_s=0, clock=count().__next__).step for config in [cut] * 6]
    assert ends == [1, 2, 3, 4, 5, 6]
    assert fit(unbroken, Runtime(CPU, "fp32")).finished
    found, wanted = (torch.load(config.output / "checkpoint.pt", weights_only=True) for config in (cut, unbroken))
    for part in ("net", "average", "discriminator"):
        assert all(torch.equal(found["trainee"][part][key], value) for key, value in wanted["trainee"][part].items())


def test_weights_that_a_run_begins_with_are_measured_as_its_first_phase_uses_them_before_its_time_counts(
    pix2pixhd_config: Config, tmp_path: Path, save_untrained: Callable[..., Path]
) -> None:
    data = pix2pixhd_config().data
    given = {"data": data.model_copy(update={"validation": data.path}), "generator": LOCAL, "seconds": 1000.0}
    initial = save_untrained(Pix2PixHD().build(pix2pixhd_config(**given).generator), tmp_path / "begun.pth")
    config = pix2pixhd_config(**given, phase=[PHASE | {"part": "global"}], initial=initial)
    log, lines_when_read = config.output / "log.jsonl", list[int]()

    def clock() -> float:
        lines_when_read.append(log.read_text().count("\n") if log.exists() else 0)
        return float(len(lines_when_read))

    fit(config, Runtime(CPU, "fp32"), stop_after_s=0, clock=clock)
    measured = json.loads(log.read_text().splitlines()[0])
    assert measured == {"step": 0} | trainee_of(config).validate()
    assert lines_when_read[:2] == [0, 1], "the first reading is for stop_after_s, which counts everything"


def test_the_global_part_sees_what_the_whole_net_shows_it() -> None:
    net = TrainedGenerator(Pix2PixHDOptions.model_validate(LOCAL))
    seen = list[Tensor]()
    net.net.get_submodule("model").register_forward_pre_hook(lambda _part, inputs: seen.append(inputs[0]))
    inputs = torch.rand(1, 14, 32, 32), torch.rand(1, 3, 32, 32), torch.zeros(1, 1, 32, 32)
    net(*inputs)
    net.begin_part("global")
    assert net(*inputs).shape == (1, 3, 16, 16)
    assert torch.equal(seen[0], seen[1])


@pytest.mark.parametrize("options", [LOCAL, {"label_nc": 13, "ngf": 2, "downsamplings": 1, "blocks": 1}])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_half_precision_a_pixel_that_is_nearly_white_still_learns(precision: Any, options: dict[str, Any]) -> None:
    """The usual form, tanh of half-precision values, rounds to 1 above about 4, where the gradient of tanh is 0."""
    net, nearly_white = TrainedGenerator(Pix2PixHDOptions.model_validate(options)), list[Tensor]()

    def set_to_five(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        nearly_white.append(torch.full_like(output, 5.0, requires_grad=True))
        return nearly_white[0]

    convolutions = [module for module in net.net.modules() if isinstance(module, nn.Conv2d)]
    convolutions[-1].register_forward_hook(set_to_five)
    with Runtime(CPU, precision).autocast():
        output = net(torch.zeros(1, 14, 16, 16), torch.zeros(1, 3, 16, 16), torch.zeros(1, 1, 16, 16))
    output.sum().backward()
    values = nearly_white[0]
    assert values.dtype in (torch.bfloat16, torch.float16)
    assert values.grad.abs().min() > 1e-5
    naive = torch.full((1,), 5.0, dtype=values.dtype, requires_grad=True)
    torch.tanh(naive).sum().backward()
    assert float(naive.grad) == 0


def test_vgg_features_take_part_where_their_file_is_given(pix2pixhd_config: Config, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    state = {
        key: torch.randn(tensor.shape, generator=generator) * 0.05
        for key, tensor in VGG16Features().state_dict().items()
        if not key.startswith("scale.")
    }
    save_file(state, tmp_path / "vgg.safetensors")
    config = pix2pixhd_config(features=tmp_path / "vgg.safetensors", phase=[PHASE | {"perceptual": 10.0}])
    terms = trainee_of(config).step(0, position_of_step(0, config.phase))
    assert terms["perceptual"] > 0


def test_the_perceptual_loss_is_nothing_for_the_truth_and_weighs_deep_blocks_more() -> None:
    net = VGG16Features()
    for index, module in enumerate(module for module in net.modules() if isinstance(module, nn.Conv2d)):
        nn.init.normal_(module.weight, std=(2 / module.weight[0].numel()) ** 0.5)
        nn.init.zeros_(module.bias)
        last = index
    assert last == 6
    one, other = torch.rand(2, 1, 3, 32, 32) * 2 - 1
    assert perceptual_loss(net, one, one) == 0
    found, wanted = net(one / 2 + 0.5).activations, net(other / 2 + 0.5).activations
    gaps = [float((f - w).abs().mean()) for f, w in zip(found, wanted, strict=True)]
    by_hand = gaps[0] / 32 + gaps[1] / 16 + gaps[2] / 8
    assert perceptual_loss(net, one, other).item() == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("net", ["global", "local"])
def test_an_encoder_learns_with_the_generator_and_lies_in_its_file(net: str, pix2pixhd_config: Config) -> None:
    encoded = LOCAL | {"net": net, "features": 3, "encoder_width": 2, "encoder_downsamplings": 1}
    config = pix2pixhd_config(generator=encoded)
    trainee = trainee_of(config)
    before = {key: tensor.clone() for key, tensor in trainee.net.state_dict().items()}
    trainee.step(0, position_of_step(0, config.phase))
    assert any(key.startswith("net.encoder.") for key in changed(before, trainee.net))
    found = Pix2PixHD().recognise(trainee.generator_state())
    assert found is not None
    assert (found.label_nc, found.features, found.net) == (13, 3, net)


def test_an_instance_takes_its_look_from_the_picture(pix2pixhd_config: Config) -> None:
    encoded = {"label_nc": 13, "ngf": 2, "downsamplings": 1, "blocks": 1, "features": 3}
    encoded |= {"encoder_width": 2, "encoder_downsamplings": 1}
    trainee = trainee_of(pix2pixhd_config(generator=encoded))
    planes, target, instances = trainee.batch(0, position_of_step(0, pix2pixhd_config().phase))
    with torch.no_grad():
        other = trainee.net(planes, -target, instances)
        assert not torch.allclose(trainee.net(planes, target, instances), other)
        family = Pix2PixHD().wrap(trainee.net.net, trainee._config.generator)
        labels = planes[:, :-1].argmax(1, keepdim=True).to(torch.uint8)
        assert torch.allclose(family(labels, instances, 0.5 - target / 2), other / 2 + 0.5, atol=1e-6)


def test_a_sheet_shows_labels_in_the_colours_of_the_data(pix2pixhd_config: Config) -> None:
    sheet = (trainee_of(pix2pixhd_config()).sheet() * 255).round().byte()
    shown = {tuple(pixel) for pixel in sheet[:, :, :32].flatten(1).t().tolist()}
    assert shown <= set(FACADE_COLOURS.values())
    assert len(shown) > 2


def test_other_data_sets_are_trained_on_and_shown(pix2pixhd_config: Config, tmp_path: Path) -> None:
    for folder, suffix, pixels in (("images", "jpg", (48, 64, 3)), ("annotations", "png", (48, 64))):
        (tmp_path / folder / "training").mkdir(parents=True)
        values = np.indices(pixels[:2]).sum(0)[(...,) + (None,) * (len(pixels) - 2)] // 8 * 15
        cv2.imwrite(str(tmp_path / folder / f"training/1.{suffix}"), np.broadcast_to(values, pixels).astype(np.uint8))
    data = {"path": str(tmp_path), "layout": "ade20k", "load_side": 36, "crop": 32}
    config = pix2pixhd_config(data=data, generator={"label_nc": 151, "ngf": 2, "downsamplings": 1, "blocks": 1})
    trainee = trainee_of(config)
    assert trainee.step(0, position_of_step(0, config.phase))["loss"].isfinite()
    assert len(trainee.sheet()[:, :, :32].flatten(1).unique(dim=1).t()) > 3


def test_a_run_can_begin_with_given_weights(pix2pixhd_config: Config, tmp_path: Path) -> None:
    first = Pix2PixHDTrainee(pix2pixhd_config(), Runtime(CPU, "fp32"))
    torch.save(first.generator_state(), tmp_path / "first.pth")
    second = Pix2PixHDTrainee(pix2pixhd_config(seed=9, initial=tmp_path / "first.pth"), Runtime(CPU, "fp32"))
    assert not changed(first.net.state_dict(), second.net)


def test_no_step_before_its_phase(pix2pixhd_config: Config) -> None:
    config = pix2pixhd_config()
    with pytest.raises(RuntimeError, match="begin_phase"):
        Pix2PixHDTrainee(config, Runtime(CPU, "fp32")).step(0, position_of_step(0, config.phase))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": {"path": "x", "layout": "pairs"}}, "label maps"),
        ({"generator": {"label_nc": 35}}, "label_nc is 13"),
        ({"generator": {"label_nc": 13, "features": 3, "features_of": "label"}}, "by instance"),
        ({"data": {"path": "x", "layout": "ade20k"}}, "ade20k: generator.label_nc is 151"),
        ({"data": {"path": "x", "layout": "facades", "scale": [1.0, 1.5]}}, "cannot be interpolated"),
        ({"data": {"path": "x", "layout": "facades", "crop": 36, "load_side": 40}}, "not a multiple of 16"),
        ({"phase": [PHASE | {"part": "global"}]}, "has no parts"),
        ({"phase": [PHASE | {"perceptual": 10.0}]}, "needs VGG16"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], message: str, pix2pixhd_config: Config) -> None:
    defaults = {"generator": {"label_nc": 13}} if "data" in given else {}
    with pytest.raises(ValidationError, match=message):
        pix2pixhd_config(**defaults | given)
