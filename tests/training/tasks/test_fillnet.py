"""FillNet with its judge: the inputs and effects of a training step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from export.generators.fillnet.generator import FillNet
from training.errors import CheckpointMismatch
from training.fill_config import FillConfig
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition, position_of_step
from training.losses.vgg16 import VGG16Features
from training.tasks.fill_judge import ADVERSARIAL, FillJudge
from training.tasks.fillnet import FillTrainee

Config = Callable[..., FillConfig]
CPU = torch.device("cpu")
RUNTIME = Runtime(CPU, "fp32")
PATCHES = {"shares": {"perceptual": 0.0, "patches": 0.5}, "patches": {"widths": [4, 4]}}


@pytest.fixture
def untrained_features(tmp_path: Path) -> Path:
    """VGG16 with random filters, all five blocks."""
    state = {key: value for key, value in VGG16Features(5).state_dict().items() if not key.startswith("scale.")}
    save_file(state, tmp_path / "vgg16.safetensors")
    return tmp_path / "vgg16.safetensors"


def trainee(config: FillConfig, rank: int = 0, world: int = 1) -> FillTrainee:
    made = FillTrainee(config, Runtime(CPU, config.precision, rank=rank, world=world))
    made.begin_phase(config.phase[0])
    return made


def parameters_of(made: FillTrainee) -> list[Tensor]:
    """Return the parameters of the net, then of its judge."""
    return [*made.net.parameters(), *judge_of(made).net.parameters()]


def judge_of(made: FillTrainee) -> FillJudge:
    return made.judges[ADVERSARIAL]


def position(config: FillConfig, number: int) -> StepPosition[Any]:
    return position_of_step(number, config.phase)


def test_processes_split_the_batch_that_one_would_take(fill_config: Config) -> None:
    config = fill_config(data=fill_config().data.model_dump() | {"scale": (0.9, 1.5)})
    whole = trainee(config).batch(5, position(config, 2))
    halves = [trainee(config, rank, 2).batch(5, position(config, 2)) for rank in (0, 1)]
    for index in (0, 1):
        assert torch.equal(whole[index], torch.cat([half[index] for half in halves]))


def test_a_phase_has_crops_of_its_own_size(fill_config: Config) -> None:
    phases = [
        {"steps": 1, "batch": 2, "learning_rate": 1e-3},
        {"steps": 1, "batch": 1, "learning_rate": 1e-3, "crop": 64},
    ]
    config = fill_config(phase=phases)
    made = trainee(config)
    assert made.batch(0, position(config, 0))[0].shape == (2, 3, 32, 32)
    image, hole = made.batch(1, position(config, 1))
    assert image.shape == (1, 3, 64, 64)
    assert hole.shape == (1, 1, 64, 64)


def test_steps_take_sizes_in_turn_and_thick_boxes_among_their_holes(fill_config: Config) -> None:
    phase = {"steps": 4, "batch": 8, "learning_rate": 1e-3, "crops": [32, 64]}
    config = fill_config(phase=[phase], thick=1.0)
    made = trainee(config)
    found = [made.batch(number, position(config, number)) for number in (0, 1, 2)]
    assert [image.shape[-1] for image, _ in found] == [32, 64, 32]
    assert all(hole.mean() > 0.35 for _, hole in found)
    halves = [trainee(config, rank, 2).batch(1, position(config, 1))[1] for rank in (0, 1)]
    assert torch.equal(found[1][1], torch.cat(halves))


def test_the_judge_can_learn_alone_at_first(tmp_path: Path, fill_config: Config) -> None:
    initial = saved_generator(tmp_path / "generator.pth", fill_config())
    config = fill_config(initial=initial, judge=fill_config().judge.model_dump() | {"alone": 1})
    made = trainee(config)
    before = [parameter.detach().clone() for parameter in parameters_of(made)]
    nets = len(list(made.net.parameters()))
    made.step(0, position(config, 0))
    after = parameters_of(made)
    moved = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert not any(moved[:nets])
    assert all(moved[nets:])
    made.step(1, position(config, 1))
    assert not torch.equal(before[0], after[0])


def test_a_step_moves_both_nets_and_reports_every_loss(fill_config: Config) -> None:
    config = fill_config()
    made = trainee(config)
    before = [parameter.detach().clone() for parameter in parameters_of(made)]
    figures = made.step(1, position(config, 3))
    assert set(figures) == {"difference", "adversarial", "matching", "judge", "accuracy"}
    after = parameters_of(made)
    moved = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert all(moved)


def test_adversarial_losses_have_no_say_before_their_ramp(fill_config: Config) -> None:
    judge, weights = fill_config().judge.model_dump(), []
    for penalty in (0.0, 5.0):  # two different judges
        config = fill_config(
            judge=judge | {"ramp": (100, 200), "penalty": penalty}, shares={"perceptual": 0.0, "matching": 0.0}
        )
        made = trainee(config)
        for number in range(3):
            made.step(number, position(config, number))
        weights.append(made.net.get_parameter("stem.weight").detach().clone())
    assert torch.equal(*weights)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # torch's compiler, on loading
def test_nothing_is_compiled_before_another_process_has(tmp_path: Path, fill_config: Config) -> None:
    phase = {"steps": 4, "batch": 2, "learning_rate": 1e-3, "compile_after": str(tmp_path / "absent")}
    config = fill_config(compile=True, cuda_graphs=True, phase=[phase])
    made = trainee(config)
    made.step(0, position(config, 0))
    assert not made.compiled
    (tmp_path / "absent").touch()
    made.begin_phase(config.phase[0])
    assert made.compiled


def test_the_saved_generator_is_the_averaged_net(fill_config: Config) -> None:
    config = fill_config(ema_decay=0.0)
    made = trainee(config)
    for number in (0, 1):
        made.step(number, position(config, number))
    public = FillNet().build(config.generator)
    public.load_state_dict(made.generator_state())
    image, hole = made.batch(0, position(config, 0))
    with torch.no_grad():
        assert torch.allclose(public(image, hole), made.net(image, hole), atol=1e-4)


def test_perceptual_losses_see_the_hole(fill_config: Config, untrained_features: Path) -> None:
    found = []
    for layers in ([0.5, 1.0, 1.5], [0.5, 1.0, 1.5, 0.0, 0.0], [0.5, 1.0, 1.5, 1.0, 1.0]):
        config = fill_config(features=untrained_features, shares={"perceptual": 1.0}, layers=layers)
        figures: dict[str, Tensor] = trainee(config).step(0, position(config, 0))
        found.append(float(figures["perceptual"]))
    assert 0 < found[0] == found[1] < found[2], "deeper blocks count as they are asked to"


def test_a_sheet_shows_hole_fill_and_truth_side_by_side(fill_config: Config) -> None:
    made = trainee(fill_config(sheet_pictures=2))
    assert made.sheet().shape == (3, 64, 96)


def test_validation_measures_on_pictures_that_are_held_out(fill_config: Config, photographs: Path) -> None:
    data = fill_config().data.model_dump() | {"validation": photographs, "validation_limit": 2}
    figures = trainee(fill_config(data=data)).validate()
    assert figures["validation_psnr_db"] > 5
    assert trainee(fill_config()).validate() == {}


def test_a_run_begins_with_the_generator_and_the_judge_of_another(tmp_path: Path, fill_config: Config) -> None:
    config = fill_config(ema_decay=0.0)
    first = trainee(config)
    first.step(0, position(config, 3))
    torch.save(first.generator_state(), tmp_path / "generator.pth")
    torch.save({key: tensor.half() for key, tensor in judge_of(first).net.state_dict().items()}, tmp_path / "judge.pth")
    judge = config.judge.model_dump() | {"initial": tmp_path / "judge.pth"}
    second = trainee(fill_config(seed=9, initial=tmp_path / "generator.pth", judge=judge))
    image, hole = first.batch(1, position(config, 3))
    with torch.no_grad():
        assert torch.allclose(first.net(image, hole), second.net(image, hole), atol=1e-4)
        shown = torch.cat([image, hole], 1)
        for one, other in zip(judge_of(first).net(shown).logits, judge_of(second).net(shown).logits, strict=True):
            assert torch.allclose(one, other, atol=0.02)


ATTENTIVE = {"widths": "8,8", "encoder": "1,0", "decoder": "0,1", "context": "0,2"}


def saved_generator(path: Path, config: FillConfig) -> Path:
    torch.save(trainee(config).generator_state(), path)
    return path


def test_a_run_ends_when_its_judge_of_small_patches_stays_blind(tmp_path: Path, fill_config: Config) -> None:
    initial = saved_generator(tmp_path / "generator.pth", fill_config())
    judge = fill_config().judge.model_dump() | {"alone": 2}
    for least, blind in ((1.0, True), (0.0, False)):
        options = PATCHES | {"patches": {"widths": [4, 4], "min_accuracy": least}}
        config = fill_config(initial=initial, judge=judge, **options)
        made = trainee(config)
        for number in range(3):
            made.step(number, position(config, number))
            assert made.reason_to_stop(number) is None
        assert ("min_accuracy" in str(made.reason_to_stop(3))) is blind


def test_what_a_run_goes_on_from_is_measured_as_it_was(tmp_path: Path, fill_config: Config, photographs: Path) -> None:
    data = fill_config().data.model_dump() | {"validation": photographs, "validation_limit": 2}
    own = trainee(fill_config(data=data)).validate_start()
    for seed, same in ((3, True), (9, False)):  # 3 is the seed of `own`
        initial = saved_generator(tmp_path / f"{seed}.pth", fill_config(data=data, seed=seed))
        found = trainee(fill_config(data=data, initial=initial)).validate_start()
        assert (found == pytest.approx(own, rel=1e-3)) is same


class Meeting:
    """The exchange in which two processes, here threads, average their tensors."""

    def __init__(self) -> None:
        self._both, self._given = Barrier(2, timeout=30), dict[int, list[Tensor]]()

    def average(self, rank: int, tensors: Sequence[Tensor]) -> None:
        self._given[rank] = [tensor.clone() for tensor in tensors]
        self._both.wait()
        means = [(one + other) / 2 for one, other in zip(self._given[0], self._given[1], strict=True)]
        self._both.wait()
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.copy_(mean)


@dataclass(frozen=True)
class ThreadRuntime(Runtime):
    """One of two processes, run in a thread."""

    meeting: Meeting = field(default_factory=Meeting)

    def average_over_processes(self, tensors: Sequence[Tensor]) -> None:
        with torch.no_grad():
            self.meeting.average(self.rank, tensors)

    def begin_average(self, tensor: Tensor) -> Callable[[], object]:
        self.average_over_processes([tensor])
        return lambda: None


def test_processes_agree_on_the_accuracy_of_their_judge_of_small_patches(tmp_path: Path, fill_config: Config) -> None:
    initial = saved_generator(tmp_path / "generator.pth", fill_config())
    config = fill_config(initial=initial, judge=fill_config().judge.model_dump() | {"alone": 2}, **PATCHES)
    meeting = Meeting()

    def train(rank: int) -> list[float]:
        made, found = FillTrainee(config, ThreadRuntime(CPU, "fp32", rank=rank, world=2, meeting=meeting)), []
        made.begin_phase(config.phase[0])
        for number in range(3):
            made.step(number, position(config, number))
            found.append(float(made.state()["accuracy"]))
        return found

    with ThreadPoolExecutor(2) as pool:
        leader, other = pool.map(train, (0, 1))
    assert leader == other
    assert leader[0] != leader[1] == leader[2]


def test_a_state_brings_back_the_net_and_all_judges(tmp_path: Path, fill_config: Config) -> None:
    initial = saved_generator(tmp_path / "generator.pth", fill_config(generator=ATTENTIVE))
    judge = fill_config().judge.model_dump() | {"alone": 2}
    options = {"generator": ATTENTIVE, "judge": judge, **PATCHES}
    ours = trainee(fill_config(initial=initial, **options))
    ours.step(0, position(fill_config(), 0))
    theirs = FillTrainee(fill_config(initial=initial, **options).model_copy(update={"initial": None}), RUNTIME)
    theirs.load(copy.deepcopy(ours.state()))
    theirs.begin_phase(fill_config().phase[0])
    for number in (1, 2):
        assert ours.step(number, position(fill_config(), number)) == theirs.step(
            number, position(fill_config(), number)
        )


def test_a_state_of_an_earlier_version_gives_the_accuracy_as_told(fill_config: Config) -> None:
    state = trainee(fill_config()).state()
    state["told"] = state.pop("accuracy") + 0.25
    continued = trainee(fill_config())
    continued.load(state)
    assert float(continued.state()["accuracy"]) == 0.75


def test_a_generator_instead_of_the_judge_is_refused(tmp_path: Path, fill_config: Config) -> None:
    torch.save(trainee(fill_config()).generator_state(), tmp_path / "generator.pth")
    judge = fill_config().judge.model_dump() | {"initial": tmp_path / "generator.pth"}
    with pytest.raises(CheckpointMismatch, match="no weights that fit"):
        trainee(fill_config(judge=judge))
