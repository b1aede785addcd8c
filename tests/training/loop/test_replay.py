"""Recorded and replayed updates: on a CPU by running them again, on a GPU as CUDA graphs (`make test-gpu`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from training.config import AnyConfig
from training.fit import make_trainee
from training.loop.replay import WARM_UP, NetUpdate, Rate, ReplayedUpdate
from training.loop.runtime import Runtime, start_runtime
from training.loop.updates import OptimiserUpdates
from training.profiling.stepping import make_stepper

CPU = torch.device("cpu")
STEPS = WARM_UP + 4


@dataclass
class Repetition:
    """A recording whose replay runs the function again, on the recorded tensors."""

    work: Callable[[], None]
    runs: list[str]
    freed: bool = False

    def replay(self) -> None:
        self.runs.append("replay")
        self.work()

    def reset(self) -> None:
        self.freed = True


@dataclass
class Repeater:
    """A recorder whose recordings run the function again."""

    runs: list[str] = field(default_factory=list)
    recordings: list[Repetition] = field(default_factory=list)

    def run(self, work: Callable[[], None]) -> None:
        self.runs.append("run")
        work()

    def record(self, work: Callable[[], None]) -> Repetition:
        self.recordings.append(Repetition(work, self.runs))
        return self.recordings[-1]


def descent(weight: Tensor) -> NetUpdate:
    """Return an update that fits a weight to map inputs to targets."""

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
    runtime = Runtime(torch.device(device), "fp32")
    assert runtime.replay(update, runtime.recorder(wanted=wanted)) is update


def test_recordings_are_freed_before_processes_part(partial_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL does not release a process while CUDA graphs hold its messages."""
    recorder, freed = Repeater(), list[bool]()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("training.loop.runtime._choose_device", lambda _name: torch.device("cuda"))
    monkeypatch.setattr("training.loop.runtime.CUDARecorder", lambda _device: recorder)
    monkeypatch.setattr(
        "training.loop.runtime.ReplayedUpdate", lambda update, recorder, _: ReplayedUpdate(update, recorder, CPU)
    )
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda _backend: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: freed.append(recorder.recordings[0].freed))
    with start_runtime(partial_config()) as runtime:
        update: Any = runtime.replay(descent(torch.zeros(())), runtime.recorder(wanted=True))
        for number in range(STEPS):
            update(0.1, *batch(number))
        assert not recorder.recordings[0].freed
    assert freed == [True]


PHASES: dict[str, list[dict[str, Any]]] = {
    "pdgan": [{"part": "diverse", "steps": 9, "batch": 2, "learning_rate": 1e-3, "warm_up": 2}],
    "partial": [{"steps": 9, "batch": 4, "learning_rate": 1e-3, "warm_up": 2, "adversarial": 0.1}],
}
ANY_PHASE = [{"steps": 9, "batch": 4, "learning_rate": 1e-3, "warm_up": 2}]
ALLOWED, ALLOWED_IN_FIGURES = 0.1, {"fp32": 1e-3, "fp16": 1e-2}
"""Largest relative errors. Errors of 1e-5 in the weights, as from other convolution algorithms, change PD-GAN's mean
gradient by 0.08, errors of 1e-6 by 0.004; a replay that misses a batch, a rate or an optimiser's step, by 0.25."""
NETS, OPTIMISERS = ("net", "discriminator", "judge"), ("updates", "discriminator_updates", "judge_updates")


def tensors_in(state: Any, path: str = "") -> dict[str, Tensor]:
    """Return the tensors of nested dictionaries and lists by their paths."""
    if isinstance(state, Tensor):
        return {path: state}
    inner = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return {name: found for key, each in inner for name, found in tensors_in(each, f"{path}/{key}").items()}


def joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(1), *(tensor.detach().float().flatten().cpu() for tensor in tensors)])


def take_step(trainee: Any, step: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Run a step; return its figures, and flat tensors with its effect on each net and optimiser.

    The effect on weights is the length of their change, as Adam turns the sign of a gradient that is 0 up to rounding,
    such as that of a bias before a norm, into a whole step. The effect on Adam is its mean gradient.
    """
    nets = {name: net for name in NETS if (net := getattr(trainee, name, None)) is not None}
    before = {name: joined(net.parameters()) for name, net in nets.items()}
    seen = {f"figure {name}": value.cpu() for name, value in step().items()}
    for name, net in nets.items():
        seen[f"length of the step of {name}"] = (joined(net.parameters()) - before[name]).norm()
        seen[f"statistics of {name}"] = joined(net.buffers())
    state = trainee.state()
    for name in OPTIMISERS:
        held = tensors_in(state.get(name, {}))
        for kind in ("exp_avg", "step"):
            seen[f"{kind} of {name}"] = joined(value for path, value in held.items() if path.endswith(f"/{kind}"))
    return seen


def assert_same_steps(trainees: Sequence[Any], config: AnyConfig, runtime: Runtime) -> None:
    """Check that two trainees take the same steps; the second begins each step with the first's tensors.

    Otherwise rounding errors grow: in PD-GAN within four steps from 1e-7 of the weights to a tenth of the losses.
    """
    steppers = [make_stepper(each, config, runtime, 0) for each in trainees]
    for number in range(STEPS):
        source, target = (tensors_in(each.state()) for each in trainees)
        for path in source.keys() & target.keys():
            target[path].copy_(source[path])
        wanted, found = (take_step(*each) for each in zip(trainees, steppers, strict=True))
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            size, allowed = float(value.norm()), ALLOWED
            if name.startswith("figure"):
                size, allowed = max(size, 1.0), ALLOWED_IN_FIGURES[config.precision]
            apart = float((found[name] - value).norm())
            assert apart <= allowed * size, f"step {number}, {name}: {apart} apart, of {size}"


def begun(config: AnyConfig, runtime: Runtime) -> Any:
    trainee = make_trainee(config, runtime)
    trainee.begin_phase(config.phase[0])
    return trainee


class StaleBatch(ReplayedUpdate):
    """A faulty replay that uses the recorded batch again."""

    def _copy_inputs(self, inputs: tuple[Tensor, ...]) -> None:
        pass


class StaleRate(ReplayedUpdate):
    """A faulty replay that uses the recorded learning rate again."""

    def __call__(self, rate: float, *inputs: Tensor) -> dict[str, Tensor]:
        return super().__call__(rate if self._calls <= WARM_UP else float(self._rate), *inputs)


class StaleNumbers(ReplayedUpdate):
    """A faulty replay that uses the same random numbers each time."""

    def _run(self) -> None:
        if self._recording is not None:
            torch.manual_seed(0)
        super()._run()


class LostStep(ReplayedUpdate):
    """A faulty replay without the second optimiser's step."""

    def _run(self) -> None:
        apply, before = OptimiserUpdates.apply, iter(range(2))
        with pytest.MonkeyPatch.context() as patched:
            if self._recording is not None:
                patched.setattr(OptimiserUpdates, "apply", lambda *given: None if next(before) else apply(*given))
            super()._run()


@pytest.mark.parametrize("made", [ReplayedUpdate, StaleBatch, StaleRate, StaleNumbers, LostStep])
def test_the_comparison_sees_what_a_replay_lacks(made: type[ReplayedUpdate], pix2pix_config: Any) -> None:
    config = pix2pix_config(phase=ANY_PHASE)
    with start_runtime(config, "cpu") as runtime:
        launched, replayed = begun(config, runtime), begun(config, runtime)
        replayed._update = made(replayed._update, Repeater(), CPU)
        with nullcontext() if made is ReplayedUpdate else pytest.raises(AssertionError, match=r"step [34], "):
            assert_same_steps([launched, replayed], config, runtime)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default::UserWarning:torch")  # the host's torch emits warnings of its own
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
    config = make(precision=precision, compile=compiled, phase=phase, deterministic=False)
    torch.compiler.reset()
    with start_runtime(config, "cuda") as runtime:
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # both must use the same convolution algorithms
        replayed = config.model_copy(update={"cuda_graphs": True})
        assert_same_steps([begun(config, runtime), begun(replayed, runtime)], config, runtime)
