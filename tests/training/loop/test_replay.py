"""Updates that are recorded and replayed: on a CPU by running them again, on a GPU as CUDA graphs (`make test-gpu`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from training.config import AnyConfig
from training.fit import make_trainee
from training.loop.replay import WARM_UP, NetUpdate, Rate, ReplayedUpdate
from training.loop.runtime import Runtime, start_runtime
from training.profiling.stepping import make_stepper

CPU = torch.device("cpu")
STEPS = WARM_UP + 4


@dataclass
class Repeater:
    """A recorder that runs a recorded function again, on the tensors that it was recorded with."""

    runs: list[str] = field(default_factory=list)

    def run(self, work: Callable[[], None]) -> None:
        self.runs.append("run")
        work()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        def replay() -> None:
            self.runs.append("replay")
            work()

        return replay


def descent(weight: Tensor) -> NetUpdate:
    """Return an update of a weight that should map inputs to targets."""

    def update(rate: Rate, given: Tensor, wanted: Tensor) -> dict[str, Tensor]:
        gap = given * weight - wanted
        weight.sub_(rate * (gap * given).mean())
        return {"loss": gap.square().mean(), "rate": torch.as_tensor(rate) * 1.0}

    return update


def batch(number: int) -> tuple[Tensor, Tensor]:
    given = torch.rand(5, generator=torch.Generator().manual_seed(number))
    return given, 3 * given


def test_a_replayed_update_does_what_the_update_does_with_each_batch_and_rate() -> None:
    plain, replayed, recorder = torch.zeros(()), torch.zeros(()), Repeater()
    update, again = descent(plain), ReplayedUpdate(descent(replayed), recorder, CPU)
    for number in range(STEPS):
        wanted, found = update(0.1 / (number + 1), *batch(number)), again(0.1 / (number + 1), *batch(number))
        assert found.keys() == wanted.keys()
        assert all(torch.allclose(found[name], value) for name, value in wanted.items())
        assert torch.allclose(replayed, plain)
    assert recorder.runs == ["run"] * WARM_UP + ["replay"] * (STEPS - WARM_UP)


def test_scalars_stay_as_they_were_while_later_calls_replay() -> None:
    update = ReplayedUpdate(descent(torch.zeros(())), Repeater(), CPU)
    found = [update(0.1, *batch(number))["loss"] for number in range(STEPS)]
    assert len({float(loss) for loss in found}) == STEPS


def test_the_tensors_of_a_caller_are_only_read() -> None:
    update, given = ReplayedUpdate(descent(torch.zeros(())), Repeater(), CPU), [batch(n) for n in range(STEPS)]
    for each in given:
        update(0.1, *each)
    assert all(torch.equal(one, batch(n)[0]) for n, (one, _) in enumerate(given))


def test_a_batch_of_another_shape_is_refused() -> None:
    update = ReplayedUpdate(descent(torch.zeros(())), Repeater(), CPU)
    for number in range(STEPS):
        update(0.1, *batch(number))
    with pytest.raises(RuntimeError, match=r"got \(1,\) in place of \(5,\)"):
        update(0.1, torch.ones(1), torch.ones(1))


@pytest.mark.parametrize(("device", "wanted"), [("cpu", True), ("cuda", False)])
def test_an_update_is_itself_without_a_gpu_or_unasked(device: str, wanted: bool) -> None:
    update = descent(torch.zeros(()))
    assert Runtime(torch.device(device), "fp32").replay(update, wanted=wanted) is update


PHASES: dict[str, list[dict[str, Any]]] = {
    "pdgan": [{"part": "diverse", "steps": 9, "batch": 2, "learning_rate": 1e-3, "warm_up": 2}],
    "partial": [{"steps": 9, "batch": 4, "learning_rate": 1e-3, "warm_up": 2, "adversarial": 0.1}],
}
ANY_PHASE = [{"steps": 9, "batch": 4, "learning_rate": 1e-3, "warm_up": 2}]


def figures_of_steps(config: AnyConfig) -> tuple[list[dict[str, float]], Tensor]:
    """Return the figures of some steps on a GPU, and the weights of the net after them, flat.

    Convolution algorithms are fixed: where a gradient is 0 but for rounding, Adam makes whole steps of its sign.
    """
    torch.compiler.reset()
    with start_runtime(config, "cuda") as runtime:
        torch.backends.cudnn.benchmark = False
        trainee: Any = make_trainee(config, runtime)
        trainee.begin_phase(config.phase[0])
        step = make_stepper(trainee, config, runtime, 0)
        figures = [step() for _ in range(STEPS)]
        weights = torch.cat([parameter.detach().flatten() for parameter in trainee.net.parameters()])
        return [{name: float(value) for name, value in each.items()} for each in figures], weights.cpu()


@pytest.mark.gpu
@pytest.mark.filterwarnings("default::UserWarning:torch")  # the host's own torch warns of itself
@pytest.mark.filterwarnings("default::DeprecationWarning:torch")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", ["pgn", "pdgan", "dcgan", "pix2pix", "pix2pixhd", "partial"])
def test_steps_replayed_as_cuda_graphs_are_those_of_launched_kernels(
    model: str, precision: str, compiled: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    make, phase = request.getfixturevalue(f"{model}_config"), PHASES.get(model, ANY_PHASE)
    knobs = {"precision": precision, "compile": compiled, "phase": phase, "deterministic": False}
    runs = [figures_of_steps(make(cuda_graphs=each, **knobs)) for each in (False, False, True)]
    (wanted, weights), (again, repeated), (found, replayed) = runs
    noise, least = 3.0, 1e-3 if precision == "fp32" else 1e-2  # sums of atomic additions differ
    for number, (one, two, other) in enumerate(zip(wanted, again, found, strict=True)):
        assert other.keys() == one.keys()
        for name, value in one.items():
            allowed = noise * abs(two[name] - value) + least * max(1.0, abs(value))
            assert abs(other[name] - value) <= allowed, f"step {number}: {name} {other[name]}, {value}, {two[name]}"
    apart, allowed = (float((each - weights).norm() / weights.norm()) for each in (replayed, repeated))
    assert apart <= noise * allowed + least, f"weights: {apart}; two runs without graphs: {allowed}"
