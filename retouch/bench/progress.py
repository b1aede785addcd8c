"""Progress bars of a benchmark, cheap because they share the CPU with the server under test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from retouch.bench.load import Observation


class ProgressBars:
    """Shows one progress bar for each run; implements ProgressWatcher."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._run: TaskID | None = None
        self._ok = 0
        self._failed = 0

    def on_run_begin(self, name: str, duration_s: float) -> None:
        """Complete the last run's bar and start another."""
        self.finish()
        self._ok = self._failed = 0
        self._run = self._progress.add_task(name, total=duration_s, ok=0, failed=0)

    def on_reply(self, observation: Observation) -> None:
        """Count a reply and advance the bar to its time."""
        ok = observation.reply.status == 200
        self._ok += ok
        self._failed += not ok
        if self._run is not None:
            self._progress.update(self._run, completed=observation.done_s, ok=self._ok, failed=self._failed)

    def finish(self) -> None:
        """Complete the last run's bar, whose replies may have ended early."""
        if self._run is not None:
            self._progress.update(self._run, completed=self._progress.tasks[self._run].total)


@contextmanager
def show_progress(console: Console) -> Iterator[ProgressBars]:
    """Show progress bars on a terminal, and nothing elsewhere."""
    columns = (
        TextColumn("{task.description:>12}"),
        BarColumn(),
        TextColumn("{task.fields[ok]} ok, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=4, disable=not console.is_terminal) as progress:
        bar = ProgressBars(progress)
        yield bar
        bar.finish()
