"""Progress of a TensorRT build, from the phases that the library reports while it builds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from engines.errors import LoadStopped
from engines.trt.library import TensorRt


@dataclass(slots=True)
class _Phase:
    """A phase that has begun: its parent's name, and how many of its steps are done."""

    parent: str | None
    steps: int
    done: int = 0


class BuildProgress:
    """Computes the fraction of a build that is done. The library calls it from several threads.

    Args:
        notify: called with each new percentage.
    """

    def __init__(self, notify: Callable[[int], None]) -> None:
        self._notify = notify
        self._lock = Lock()
        self._phases: dict[str, _Phase] = {}
        self._percent = -1

    def begin(self, name: str, parent: str | None, steps: int) -> None:
        """Note that a phase begins, within another one or on its own."""
        with self._lock:
            self._phases[name] = _Phase(parent, max(1, steps))

    def complete_step(self, name: str, step: int) -> None:
        """Note that a step of a phase is complete; steps are numbered from 0."""
        with self._lock:
            if name not in self._phases:
                return
            self._phases[name].done = step + 1
            percent = int(100 * self._fraction(name))
            is_news, self._percent = percent > self._percent, max(percent, self._percent)
        if is_news:
            self._notify(percent)

    def end(self, name: str) -> None:
        """Note that a phase ends."""
        with self._lock:
            self._phases.pop(name, None)

    def _fraction(self, name: str) -> float:
        """Return how much of the outermost phase around this one is done."""
        phase, fraction = self._phases.get(name), 0.0
        while phase is not None:
            fraction = min(1.0, (phase.done + fraction) / phase.steps)
            phase = self._phases.get(phase.parent) if phase.parent else None
        return fraction


def watch_build(library: TensorRt, config: Any, notify: Callable[[str], None]) -> object:
    """Report the progress of the build with `config`; the caller keeps the returned object until the build ends.

    The build is cancelled when `notify` raises LoadStopped.
    """
    module = library.module
    if not hasattr(module, "IProgressMonitor"):
        return None
    progress = BuildProgress(lambda percent: notify(f"building its plan with {library.name}, {percent} %"))

    class Monitor(module.IProgressMonitor):  # type: ignore[misc, name-defined] # the base is only known at run time
        def __init__(self) -> None:
            module.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            progress.begin(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            try:
                progress.complete_step(phase_name, step)
            except LoadStopped:
                return False  # the library cancels the build, which then gives no plan
            return True

        def phase_finish(self, phase_name: str) -> None:
            progress.end(phase_name)

    monitor = Monitor()
    config.progress_monitor = monitor
    return monitor
