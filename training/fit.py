"""The training loop.

data ─▶ batch(seed, step) ─▶ net, losses ─▶ update ─▶ average ─▶ log, sheet, checkpoint ─▶ generator.pth
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.config import AnyConfig, PConvConfig
from training.dcgan_config import DCGANConfig
from training.errors import TrainingDiverged
from training.fill_config import FillConfig
from training.judge_config import starting_judges
from training.loop.checkpoints import Progress, hold_run, read_run, save_checkpoint, save_generator
from training.loop.journal import Journal
from training.loop.pace import CountedPace, Pace, TimedPace
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import write_sheet
from training.loop.trainee import Trainee
from training.pdgan_config import PDGANConfig
from training.pgn_config import PGNConfig
from training.pix2pixhd_config import Pix2PixHDConfig
from training.seeds import Purpose, derived_seed
from training.tasks.dcgan import DCGANTrainee
from training.tasks.fillnet import FillTrainee
from training.tasks.partial_conv import PartialTrainee
from training.tasks.pdgan import PDGANTrainee
from training.tasks.pgn import PGNTrainee
from training.tasks.pix2pix import Pix2PixTrainee
from training.tasks.pix2pixhd import Pix2PixHDTrainee

_STEPS_PER_READING = 20
"""Steps between readings of the clock, in timed runs (`seconds`) of several processes."""


@dataclass(frozen=True)
class FitOutcome:
    """The step at which a call of `fit` ended, and the saved generator."""

    step: int
    total: int
    """Steps of the whole run: the steps that it took if it is finished, else the sum of its phases' steps."""
    generator: Path
    finished: bool
    """Whether all steps are done."""
    reason: str | None = None
    """Reason for which the run stopped itself early; None if it did not."""


def make_trainee(config: AnyConfig, runtime: Runtime) -> Trainee[Any]:
    """Make the trainee of a config, with its data on the device.

    Raises:
        TrainingError: the data or a file of weights or features cannot be used.
    """
    if isinstance(config, FillConfig):
        return FillTrainee(config, runtime)
    if isinstance(config, DCGANConfig):
        return DCGANTrainee(config, runtime)
    if isinstance(config, PGNConfig):
        return PGNTrainee(config, runtime)
    if isinstance(config, PDGANConfig):
        return PDGANTrainee(config, runtime)
    if isinstance(config, Pix2PixHDConfig):
        return Pix2PixHDTrainee(config, runtime)
    return PartialTrainee(config, runtime) if isinstance(config, PConvConfig) else Pix2PixTrainee(config, runtime)


def _without_initial(config: AnyConfig) -> AnyConfig:
    judges = starting_judges(config).items()
    update = {name: options.model_copy(update={"initial": None}) for name, options in judges}
    return config.model_copy(update={"initial": None, **update})


def _make_pace(config: AnyConfig, runtime: Runtime, clock: Callable[[], float], spent_s: float) -> Pace[Any]:
    if config.seconds:
        every = 1 if runtime.world == 1 else _STEPS_PER_READING
        agree = runtime.broadcast_from_leader
        return TimedPace(config.phase, config.seconds, clock, agree, steps_per_reading=every, spent_s=spent_s)
    return CountedPace(config.phase)


def fit(
    config: AnyConfig, runtime: Runtime, stop_after_s: float | None = None, clock: Callable[[], float] = time.monotonic
) -> FitOutcome:
    """Train from the run directory's last checkpoint to the end, or until the time is over; then save.

    Args:
        config: the config of the run.
        runtime: this process's part of the run.
        stop_after_s: seconds after which this call stops the run, which a later call can continue; None for no limit.
        clock: returns seconds.

    Raises:
        TrainingDiverged: losses or weights are no longer finite; earlier checkpoints are kept.
        TrainingError: the data or the run directory do not fit the config, or another process trains there.
    """
    started = clock()
    config.output.mkdir(parents=True, exist_ok=True)
    with hold_run(config.output) if runtime.is_leader else nullcontext():
        return _continue(config, runtime, lambda: stop_after_s is not None and clock() - started > stop_after_s, clock)


def _continue(config: AnyConfig, runtime: Runtime, over: Callable[[], bool], clock: Callable[[], float]) -> FitOutcome:
    """Train from the last checkpoint to the end, or until `over` returns true; then save."""
    directory = config.output
    first, state = read_run(directory, config, runtime.device) or (Progress(0), None)
    if state is None:
        trainee = make_trainee(config, runtime)
    else:  # the checkpoint's weights replace the initial ones, whose file need not exist on this host
        trainee = make_trainee(_without_initial(config), runtime)
        trainee.load(state)
    run = _Run(config, runtime, trainee, first.step, _make_pace(config, runtime, clock, first.spent_s))
    with Journal(directory, first=first.step, total=run.pace.total, writes=runtime.is_leader) as journal:
        last, finished = run.steps(journal, over, clock)
    total = last if finished else run.pace.total
    return FitOutcome(last, total, run.save(last), finished, None if finished else trainee.reason_to_stop(last))


@dataclass(frozen=True)
class _Run:
    config: AnyConfig
    runtime: Runtime
    trainee: Trainee[Any]
    first: int
    """Number of the first step: the checkpoint's next one, or 0."""
    pace: Pace[Any]

    def steps(self, journal: Journal, over: Callable[[], bool], clock: Callable[[], float]) -> tuple[int, bool]:
        """Run steps; returns the number of the next step, and whether the run is complete."""
        phase_index, pictures, number = self._measure_start(journal), 0, self.first
        position: StepPosition[Any] | None = self.pace.position(number)  # starts the clock of a timed run
        since = clock()
        while position is not None:
            if position.index != phase_index:
                phase_index = position.index
                self.trainee.begin_phase(position.phase)
            figures = self._run_step(number, position)
            number, pictures = number + 1, pictures + position.phase.batch
            following = self.pace.position(number)
            logged = number % self.config.log_every == 0 or following is None
            if logged:
                values = self._read_figures(number, figures) | {"learning_rate": position.learning_rate}
                speed, since, pictures = pictures / max(clock() - since, 1e-9), clock(), 0
                journal.record(number, values | {"images_per_s": speed})
            shown = self._save_when_due(number, position, following, journal)
            position = following
            if position is not None and self._is_over(over, number, logged=logged, shown=shown):
                return number, False
        return number, True

    def _measure_start(self, journal: Journal) -> int:
        """Record the figures of the weights that a run starts from, to see whether it improves on them.

        Begins phase 0 for it, because the phase decides which parts of a net are used. Returns the index of the phase
        that has begun; -1 if none has.
        """
        if self.first > 0 or self.config.initial is None:
            return -1
        self.trainee.begin_phase(self.config.phase[0])
        if self.runtime.is_leader and (figures := self.trainee.validate_start()):
            journal.record(0, figures)
        return 0

    def _run_step(self, number: int, position: StepPosition[Any]) -> dict[str, Tensor]:
        """Run one step; seeds torch's own generators, which dropout uses, for each step and process."""
        stream = number * self.runtime.world + self.runtime.rank
        torch.manual_seed(derived_seed(self.config.seed, stream, Purpose.DROPOUT))
        return self.trainee.step(number, position)

    def _is_over(self, over: Callable[[], bool], done: int, *, logged: bool, shown: bool) -> bool:
        """Return whether to end the run: its time is over, or it does not improve. Synchronises the processes."""
        if (logged or shown) and self.runtime.any_process(self.trainee.reason_to_stop(done) is not None):
            return True
        return (logged or self.runtime.world == 1) and self.runtime.any_process(over())

    def _read_figures(self, done: int, figures: dict[str, Tensor]) -> dict[str, float]:
        """Average all figures over processes and copy them at once: between saves nothing else waits for the device.

        Raises:
            TrainingDiverged: a figure is not finite.
        """
        stacked = torch.stack([value.float() for value in figures.values()])
        self.runtime.average_over_processes([stacked])
        values = dict(zip(figures, stacked.tolist(), strict=True))
        if lost := [name for name, value in values.items() if not math.isfinite(value)]:
            raise self._diverged_error(done, f"losses are not finite ({', '.join(lost)})")
        return values

    def _save_when_due(
        self, done: int, position: StepPosition[Any], following: StepPosition[Any] | None, journal: Journal
    ) -> bool:
        """Write the sheet, figures, checkpoint and generator that are due; returns whether the sheet was."""
        ends_phase = following is None or following.index != position.index
        if shown := ends_phase or done % self.config.sheet_every == 0:
            self._finite_state(done)
        if self.runtime.is_leader and shown:
            write_sheet(self.trainee.sheet(), self.config.output / "sheets" / f"{done:07d}.png")
            if figures := self.trainee.validate():
                journal.record(done, figures)
        if following is not None and done % self.config.checkpoint_every == 0:
            self.save(done)
        if following is not None and ends_phase and self.runtime.is_leader:
            name = f"generator-phase{position.index}"
            save_generator(self.config.output, name, self.trainee.generator_state(), half=self.config.half_weights)
        return shown

    def save(self, step: int) -> Path:
        """Save the checkpoint and the generator; all processes take part, and one writes."""
        state, directory, half = self._finite_state(step), self.config.output, self.config.half_weights
        if not self.runtime.is_leader:
            return directory / "generator.pth"
        save_checkpoint(directory, self.config, Progress(step, self.pace.spent_s), state)
        return save_generator(directory, "generator", self.trainee.generator_state(), half=half)

    def _finite_state(self, done: int) -> dict[str, Any]:
        """Return the trainee's state.

        Raises:
            TrainingDiverged: it is not finite; raised in all processes, because their weights are equal.
        """
        state = self.trainee.state()
        if not all(tensor.isfinite().all() for tensor in _floating_tensors(state)):
            raise self._diverged_error(done, "weights are not finite")
        return state

    def _diverged_error(self, done: int, what: str) -> TrainingDiverged:
        kept = max(self.first, (done - 1) // self.config.checkpoint_every * self.config.checkpoint_every)
        left = (
            f"the last checkpoint is from step {kept}, and generator.pth too" if kept else "there is no checkpoint yet"
        )
        return TrainingDiverged(
            f"step {done}: {what}; {left}. Start again in another output with a lower learning_rate, "
            "or with precision bf16 instead of fp16; initial takes a generator.pth"
        )


def _floating_tensors(state: Any) -> Iterator[Tensor]:
    """Yield every floating-point tensor in dictionaries and lists."""
    if isinstance(state, Tensor):
        if state.is_floating_point():
            yield state
    elif isinstance(state, (dict, list)):
        for inner in state.values() if isinstance(state, dict) else state:
            yield from _floating_tensors(inner)
