"""Runs a study: its cells one after another, each in its own process; an earlier call's measurements are kept."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from training.config import load_config
from training.errors import CheckpointMismatch, ConfigInvalid
from training.study.cells import BEST_ON_TWO, Cell, Machine, best_on_two, examine_machine, parse_cell, reason_not_run
from training.study.device_lock import DeviceLock
from training.study.measuring import CellRequest, Row
from training.study.process_group import run_in_group
from training.study.report import write_report
from training.study.sources import Study


@dataclass(frozen=True)
class StudyRequest:
    """The request for a study."""

    study: Study
    config: Path
    overrides: tuple[str, ...]
    cells: tuple[str, ...]
    output: Path
    steps: int = 100
    warm_up: int = 20
    phase: int = 0
    pictures: int = 2000
    device: str | None = None
    lock_file: Path | None = None
    """A lock that concurrent studies share, so that each times its steps alone."""
    limit_s: float | None = None
    """The longest time that a cell may take, including the wait for the lock."""
    profiled: bool = True
    """Whether steps are profiled too; cells that were measured without a profile are then measured again."""


def run_study(request: StudyRequest, notify: Callable[[str], None] = lambda _line: None) -> dict[str, Row]:
    """Measure every cell that is not measured yet; writes cells/NAME.json, study.json, study.md and roofline.png.

    The report is written again after every cell, so that an interrupted study keeps its figures.

    Raises:
        ConfigInvalid: a cell, the phase or the config is wrong, or the config is for another model.
        CheckpointMismatch: the output folder has cells of another config, or of other steps.
    """
    wanted = [name if name == BEST_ON_TWO else parse_cell(name).name for name in request.cells]
    config = load_config(request.config, request.overrides)
    if config.model != request.study.model:
        raise ConfigInvalid(f"{request.config}: trains {config.model}, and this study is about {request.study.model}")
    if request.phase >= len(config.phase):
        raise ConfigInvalid(f"phase {request.phase}: the config has {len(config.phase)}, counted from 0")
    folder = request.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    _claim_folder(request, config.model_dump_json())
    machine = examine_machine(request.device)
    rows: dict[str, Row] = {}
    for name in wanted:
        rows[name] = _measured_row(folder / f"{name}.json", profiled=request.profiled) or _run_row(
            request, name, rows, machine, notify
        )
        write_report(request.study, rows, request.output)
    return rows


def _claim_folder(request: StudyRequest, config: str) -> None:
    """Record the config and steps of the folder's cells; refuse a folder that has cells of others."""
    numbers = [request.steps, request.warm_up, request.phase, request.pictures]
    digest = hashlib.sha256(json.dumps([config, numbers]).encode()).hexdigest()
    known = request.output / "request.json"
    note = {"digest": digest, "config": str(request.config), "set": request.overrides, "steps": request.steps}
    if known.exists() and json.loads(known.read_text("utf-8"))["digest"] != digest:
        raise CheckpointMismatch(
            f"{request.output}: has cells of other options or steps ({known.name}); name another --output, or delete it"
        )
    known.write_text(json.dumps(note, indent=1) + "\n", "utf-8")


def _measured_row(path: Path, *, profiled: bool) -> Row | None:
    """Return the row of a cell that an earlier call measured; None if the cell must run, also because it failed."""
    if not path.exists():
        return None
    row: Row = json.loads(path.read_text("utf-8"))
    return row if row["status"] == "done" and (row["ceilings"] or not profiled) else None


def _run_row(
    request: StudyRequest, name: str, rows: dict[str, Row], machine: Machine, notify: Callable[[str], None]
) -> Row:
    path = request.output / "cells" / f"{name}.json"
    row = _not_run_row(name, rows, machine)
    if isinstance(row, Cell):
        notify(f"{name}: {request.warm_up} steps to warm up, {request.steps} timed")
        row = _run_process(request, row, path)
    if row["status"] != "done":
        notify(f"{name}: {row['status']}: {row['reason']}")
        path.write_text(json.dumps(row, indent=1) + "\n", "utf-8")
    elif request.profiled and not row["ceilings"]:
        notify(f"{name}: its steps were timed, and not profiled")
    return row


def _not_run_row(name: str, rows: dict[str, Row], machine: Machine) -> Cell | Row:
    """Return the cell to run, or the row that says why it is not run."""
    if name == BEST_ON_TWO:
        if machine.gpus < 2:
            return {"status": "not run", "reason": f"it needs 2 GPUs, and {machine.gpus} can be used here"}
        speeds = {each: row["figures"]["images_per_s"] for each, row in rows.items() if row["status"] == "done"}
        found = best_on_two({each: speed for each, speed in speeds.items() if each != BEST_ON_TWO})
        return found or {"status": "not run", "reason": "no cell of one GPU was measured before it"}
    cell = parse_cell(name)
    reason = reason_not_run(cell, machine)
    return {"status": "not run", "reason": reason} if reason else cell


def _run_process(request: StudyRequest, cell: Cell, path: Path) -> Row:
    if _measured_row(path, profiled=False) is None:  # earlier figures stay until new ones replace them
        path.unlink(missing_ok=True)
    request_file = request.output / "cells" / f"{cell.name}.request.json"
    numbers = (request.phase, request.warm_up, request.steps, request.pictures)
    # a cell of several processes does not take the lock itself: this process does
    lock_file = None if request.lock_file is None or cell.gpus > 1 else str(request.lock_file)
    cell_request = CellRequest(
        str(request.config), request.overrides, cell, *numbers, request.device, str(path), lock_file, request.profiled
    )
    request_file.write_text(json.dumps(asdict(cell_request)), "utf-8")
    command = [*_launcher(cell), str(request_file)]
    ended = ""
    try:
        with DeviceLock(request.lock_file if cell.gpus > 1 else None, cell.name).exclusive():
            status = run_in_group(command, request.limit_s)
        ended = f"its process ended with status {status}; the reason is printed above"
    except subprocess.TimeoutExpired:
        ended = f"it was not done after {request.limit_s:g} s"
    finally:
        request_file.unlink()
    if path.exists():  # an interrupted cell may have its figures, without operators
        written: Row = json.loads(path.read_text("utf-8"))
        return written
    return {"status": "failed", "reason": ended}


def _launcher(cell: Cell) -> Sequence[str]:
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cell.gpus}"] if cell.gpus > 1 else []
    return [sys.executable, *several, "-m", "training.study.cell_process"]
