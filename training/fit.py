"""The training loop.

data ─▶ batch(seed, step) ─▶ net, losses ─▶ update ─▶ average ─▶ log, sheet, checkpoint ─▶ generator.pth
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.config import AnyConfig, PConvConfig
from training.errors import TrainingDiverged
from training.loop.checkpoints import read_run, save_checkpoint, save_generator
from training.loop.journal import Journal
from training.loop.runtime import Runtime
from training.loop.schedule import Place, place_of, total_steps
from training.loop.sheets import write_sheet
from training.loop.trainee import Trainee
from training.seeds import Purpose, derived_seed
from training.tasks.partial_conv import PartialTrainee
from training.tasks.pix2pix import Pix2PixTrainee


@dataclass(frozen=True)
class Outcome:
    """The step at which a call of `fit` ended, and the saved generator."""

    step: int
    total: int
    generator: Path

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step == self.total


def make_trainee(config: AnyConfig, runtime: Runtime) -> Trainee[Any]:
    """Make the trainee of a config, with its data on the device."""
    return PartialTrainee(config, runtime) if isinstance(config, PConvConfig) else Pix2PixTrainee(config, runtime)


def fit(
    config: AnyConfig, runtime: Runtime, stop_after_s: float | None = None, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """Train from the run directory's last checkpoint to the end, or until the time is over; then save.

    Raises:
        TrainingDiverged: losses or weights are no longer finite; earlier checkpoints are kept.
        TrainingError: the data or the run directory do not fit the config.
    """
    started, directory = clock(), config.output
    directory.mkdir(parents=True, exist_ok=True)
    first, state = read_run(directory, config, runtime.device) or (0, None)
    if state is None:
        trainee = make_trainee(config, runtime)
    else:  # the checkpoint's weights replace the initial ones, whose file need not exist on this host
        trainee = make_trainee(config.model_copy(update={"initial": None}), runtime)
        trainee.load(state)
    run = _Run(config, runtime, trainee, first, total_steps(config.phase))
    with Journal(directory, first=first, total=run.total, writes=runtime.leads) as journal:
        last = run.steps(journal, lambda: stop_after_s is not None and clock() - started > stop_after_s, clock)
    return Outcome(last, run.total, run.save(last))


@dataclass(frozen=True)
class _Run:
    config: AnyConfig
    runtime: Runtime
    trainee: Trainee[Any]
    first: int
    """The step to begin with: that of the checkpoint, if there is one."""
    total: int

    def steps(self, journal: Journal, over: Callable[[], bool], clock: Callable[[], float]) -> int:
        """Run steps; returns the number of the next step."""
        phase_index, since, pictures = -1, clock(), 0
        for number in range(self.first, self.total):
            place: Place[Any] = place_of(number, self.config.phase)
            if place.index != phase_index:
                phase_index = place.index
                self.trainee.begin_phase(place.phase)
            figures = self._step(number, place)
            done, pictures = number + 1, pictures + place.phase.batch
            logged = done % self.config.log_every == 0 or done == self.total
            if logged:
                values = self._read(done, figures) | {"learning_rate": place.learning_rate}
                speed, since, pictures = pictures / max(clock() - since, 1e-9), clock(), 0
                journal.record(done, values | {"images_per_s": speed})
            self._keep(done, journal, ends_phase=place.step + 1 == place.phase.steps)
            if self._is_over(over, logged=logged):
                return done
        return self.total

    def _step(self, number: int, place: Place[Any]) -> dict[str, Tensor]:
        """Run one step; seeds torch's own generators, which dropout uses, for each step and process."""
        stream = number * self.runtime.world + self.runtime.rank
        torch.manual_seed(derived_seed(self.config.seed, stream, Purpose.DROPOUT))
        return self.trainee.step(number, place)

    def _is_over(self, over: Callable[[], bool], *, logged: bool) -> bool:
        """Return whether the time is over; several processes have to agree, which waits for the device."""
        return (logged or self.runtime.world == 1) and self.runtime.any(over())

    def _read(self, done: int, figures: dict[str, Tensor]) -> dict[str, float]:
        """Copy all figures at once, averaged over processes; between saves nothing else waits for the device."""
        stacked = torch.stack([value.float() for value in figures.values()])
        self.runtime.average([stacked])
        values = dict(zip(figures, stacked.tolist(), strict=True))
        if lost := [name for name, value in values.items() if not math.isfinite(value)]:
            raise self._diverged(done, f"losses are not finite ({', '.join(lost)})")
        return values

    def _keep(self, done: int, journal: Journal, *, ends_phase: bool) -> None:
        if shown := ends_phase or done % self.config.sheet_every == 0:
            self._sound_state(done)
        if self.runtime.leads and shown:
            write_sheet(self.trainee.sheet(), self.config.output / "sheets" / f"{done:07d}.png")
            if figures := self.trainee.validate():
                journal.record(done, figures)
        if done < self.total and done % self.config.checkpoint_every == 0:
            self.save(done)
        if done < self.total and ends_phase and self.runtime.leads:
            name = f"generator-phase{place_of(done - 1, self.config.phase).index}"
            save_generator(self.config.output, name, self.trainee.generator_state(), half=self.config.half_weights)

    def save(self, step: int) -> Path:
        """Save the checkpoint and the generator; all processes take part, and one writes."""
        state, directory, half = self._sound_state(step), self.config.output, self.config.half_weights
        if not self.runtime.leads:
            return directory / "generator.pth"
        save_checkpoint(directory, self.config, step, state)
        return save_generator(directory, "generator", self.trainee.generator_state(), half=half)

    def _sound_state(self, done: int) -> dict[str, Any]:
        """Return the trainee's state; raises if it is not finite, in all processes alike, because weights are equal."""
        state = self.trainee.state()
        if not all(tensor.isfinite().all() for tensor in _floats(state)):
            raise self._diverged(done, "weights are not finite")
        return state

    def _diverged(self, done: int, what: str) -> TrainingDiverged:
        kept = max(self.first, (done - 1) // self.config.checkpoint_every * self.config.checkpoint_every)
        left = (
            f"the last checkpoint is from step {kept}, and generator.pth too" if kept else "there is no checkpoint yet"
        )
        return TrainingDiverged(
            f"step {done}: {what}; {left}. Begin anew in another output with a lower learning_rate, "
            "or with precision bf16 in place of fp16; initial takes a generator.pth"
        )


def _floats(state: Any) -> Iterator[Tensor]:
    """Yield every floating-point tensor in dictionaries and lists."""
    if isinstance(state, Tensor):
        if state.is_floating_point():
            yield state
    elif isinstance(state, (dict, list)):
        for inner in state.values() if isinstance(state, dict) else state:
            yield from _floats(inner)
