"""Atomic checkpoints, each valid only for the config that made it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from export.generators.family import State
from training.config import FitConfig, PConvConfig
from training.errors import CheckpointMismatch, RunBusy
from training.judge_config import starting_judges

if TYPE_CHECKING:
    from pydantic.main import IncEx

CHECKPOINT_FILE = "checkpoint.pt"
_CHANGEABLE_OPTIONS: dict[str, Any] = {
    "output": True,
    "log_every": True,
    "checkpoint_every": True,
    "sheet_every": True,
    "sheet_pictures": True,
    "half_weights": True,
    "overlap": True,
    "data": {"threads", "validation", "validation_limit", "path"},
    "features": True,
    "seconds": True,
    "capacity_gb": True,
    "cuda_graphs": True,
    "stop_after": True,
    "patches": {"min_accuracy"},
    "phase": {"__all__": {"compile_after"}},
}
"""Options that do not change the weights, and paths, which differ between hosts with the same data."""
_PLACEHOLDER_PATH = Path("somewhere")
_OPTIONS_SHOWN = 8


def config_digest(config: FitConfig) -> str:
    """Hash the options that a continued run must keep."""
    return hashlib.sha256(_kept_options(config).encode()).hexdigest()


def _kept_options(config: FitConfig) -> str:
    """Return the options that a continued run must keep, as JSON; an input file counts as given, whatever its path."""
    return _without_paths(config).model_dump_json(exclude=cast("IncEx", _CHANGEABLE_OPTIONS))


def _changed_options(before: str, now: str) -> str:
    """List the options that differ between two results of `_kept_options`, with both values; at most eight by name."""
    old, new = (dict(_flattened(json.loads(text), "")) for text in (before, now))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    shown = [f"{name} {old.get(name, 'left out')}, now {new.get(name, 'left out')}" for name in names[:_OPTIONS_SHOWN]]
    return ", ".join([*shown, *([f"{len(names) - len(shown)} more"] if len(names) > len(shown) else [])])


def _flattened(value: object, name: str) -> Iterator[tuple[str, str]]:
    """Yield each value with the name that `--set` gives it, as in `phase.0.steps`."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flattened(inner, f"{name}.{key}".lstrip("."))
    else:
        yield name, json.dumps(value)


def _without_paths(config: FitConfig) -> FitConfig:
    given: dict[str, Any] = {"initial": _PLACEHOLDER_PATH} if config.initial else {}
    for name, options in starting_judges(config).items():
        given[name] = options.model_copy(update={"initial": _PLACEHOLDER_PATH})
    if isinstance(config, PConvConfig):
        given |= {"lpips_features": _PLACEHOLDER_PATH} if config.lpips_features else {}
        given |= {"masks": config.masks.model_copy(update={"folder": _PLACEHOLDER_PATH})} if config.masks.folder else {}
    return config.model_copy(update=given)


def save_atomically(value: object, path: Path) -> None:
    """Save beside the file, flush to the disk and rename over it: a kill leaves either the old file or the new one.

    Creates the folder if it is missing.

    Raises:
        OSError: the file cannot be written, as on a full disk; the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def hold_run(directory: Path) -> Iterator[None]:
    """Lock the run directory against other training processes; the kernel releases the lock when this process ends.

    Raises:
        RunBusy: another process holds the lock; nothing was written.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some file systems have no locks
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunBusy(
                    f"{directory}: another process trains here; wait for it, or name another output"
                ) from error
        yield
    finally:
        with suppress(OSError):  # closing is not enough: a forked child has inherited the folder with its lock
            fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


class Progress(NamedTuple):
    """The progress of a run."""

    step: int
    """The number of the next step."""
    spent_s: float = 0.0
    """Seconds that the run has trained so far."""


def save_checkpoint(directory: Path, config: FitConfig, progress: Progress, state: dict[str, Any]) -> None:
    """Save the progress and the trainee's state as checkpoint.pt."""
    known = {"step": progress.step, "spent_s": progress.spent_s, "config": config_digest(config)}
    known |= {"options": _kept_options(config)}
    save_atomically(known | {"trainee": state}, directory / CHECKPOINT_FILE)


def read_run(directory: Path, config: FitConfig, device: torch.device) -> tuple[Progress, dict[str, Any]] | None:
    """Return the run's progress and the trainee's state; None if it has not begun.

    Raises:
        CheckpointMismatch: the file is damaged, or of another config; the message names the options that differ.
    """
    path = directory / CHECKPOINT_FILE
    if not path.exists():
        return None
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
        progress = Progress(int(saved["step"]), float(saved.get("spent_s", 0)))
        digest, state = saved["config"], saved["trainee"]
    except (pickle.UnpicklingError, RuntimeError, LookupError, TypeError, EOFError, OSError) as error:
        raise CheckpointMismatch(f"{path}: not a checkpoint of this program, or damaged; remove it") from error
    if digest != config_digest(config):
        options = saved.get("options")  # runs of earlier versions have only the digest
        changed = f" ({_changed_options(options, _kept_options(config))})" if options else ", or by an earlier version"
        raise CheckpointMismatch(
            f"{path}: begun with other options{changed}; give another output, or remove the folder to start again"
        )
    return progress, state


def save_generator(directory: Path, name: str, state: State, *, half: bool) -> Path:
    """Save the public state dict as NAME.pth, in FP16 if `half`; running statistics and counters keep their type."""
    narrow = {
        key: tensor.half() if half and tensor.is_floating_point() and "running_" not in key else tensor
        for key, tensor in state.items()
    }
    path = directory / f"{name}.pth"
    save_atomically({key: tensor.cpu().contiguous() for key, tensor in narrow.items()}, path)
    return path
