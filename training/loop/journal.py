"""The log of a run: log.jsonl, TensorBoard if it is installed, and a progress bar on a terminal."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LOG_FILE = "log.jsonl"


class Journal:
    """Records figures by step. A continued run drops the lines of steps that it repeats."""

    def __init__(self, directory: Path, *, first: int, total: int, writes: bool = True) -> None:
        self._path, self._writes, self._writer = directory / LOG_FILE, writes, None
        if writes:
            _drop_lines_after(self._path, first)
            self._writer = _open_tensorboard(directory / "tensorboard", first)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(TextColumn("{task.description}"), *columns, transient=True, disable=not writes)
        self._task = self._progress.add_task("training", total=total, completed=first)

    def __enter__(self) -> Journal:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if self._writer is not None:
            self._writer.close()

    def record(self, step: int, figures: Mapping[str, float]) -> None:
        """Append a line to the log and show it."""
        if not self._writes:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step} | dict(figures)) + "\n")
        if self._writer is not None:
            for name, value in figures.items():
                self._writer.add_scalar(name, value, step)
        shown = " ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self._progress.update(self._task, completed=step)
        self._progress.console.print(f"{step}: {shown}", highlight=False, soft_wrap=True)


def _drop_lines_after(path: Path, step: int) -> None:
    """Keep the whole lines up to a step; if the new log cannot be written, as on a full disk, the old one stays."""
    found = path.read_text("utf-8") if path.exists() else ""
    whole = [line for line in found.splitlines(keepends=True) if line.endswith("}\n")]
    kept = "".join(line for line in whole if json.loads(line)["step"] <= step)
    if kept == found:
        path.touch()
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(kept, "utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _open_tensorboard(directory: Path, first: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (slow, and not everywhere)

    return SummaryWriter(str(directory), purge_step=first + 1)
