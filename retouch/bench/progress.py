"""Shows how far a measurement is, at little cost to the processor that it shares with what it measures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from retouch.bench.load import Observation


class Bar:
    """A bar for each run; a Watcher."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._run: TaskID | None = None
        self._ok = 0
        self._failed = 0

    def run_begins(self, name: str, duration_s: float) -> None:
        """Close the last run's bar and begin another."""
        self.finish()
        self._ok = self._failed = 0
        self._run = self._progress.add_task(name, total=duration_s, ok=0, failed=0)

    def observed(self, seen: Observation) -> None:
        """Advance to the time of this reply."""
        ok = seen.answer.status == 200
        self._ok += ok
        self._failed += not ok
        if self._run is not None:
            self._progress.update(self._run, completed=seen.done_s, ok=self._ok, failed=self._failed)

    def finish(self) -> None:
        """Fill the last run's bar: the replies may have ended before its time."""
        if self._run is not None:
            self._progress.update(self._run, completed=self._progress.tasks[self._run].total)


@contextmanager
def show_progress(console: Console) -> Iterator[Bar]:
    """Bars on a terminal, nothing elsewhere."""
    columns = (
        TextColumn("{task.description:>12}"),
        BarColumn(),
        TextColumn("{task.fields[ok]} ok, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=4, disable=not console.is_terminal) as progress:
        bar = Bar(progress)
        yield bar
        bar.finish()
