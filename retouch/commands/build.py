"""`retouch build`: compiles engines ahead of time, so that a server starts with a full cache."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Literal

import structlog
import typer

from engines.errors import RetouchError
from engines.terminal.end_signals import ending_within
from engines.terminal.folders import folder_flag

if TYPE_CHECKING:
    from collections.abc import Callable

_END_S = 5.0
"""Seconds that a library's call may go on after a signal: TensorRT's take minutes, and Docker kills after 10."""

Buildable = Literal["auto", "trt", "inductor", "onnxrt-cuda", "openvino", "onnxrt"]


class CacheUnwritable(RetouchError):
    """The engine cache cannot be written; nothing was built."""


def build(  # noqa: PLR0913, PLR0917 (each parameter is a flag of the command)
    models: Annotated[list[str] | None, typer.Argument(help="Names of models. By default all.")] = None,
    engine: Annotated[
        Buildable | None,
        typer.Option(
            metavar="NAME",
            help="Runtime to build for: auto, trt, inductor, onnxrt-cuda, openvino or onnxrt (RETOUCH_ENGINE).",
        ),
    ] = None,
    compute_capability: Annotated[
        list[str] | None,
        typer.Option(
            help="With TensorRT-RTX: compute capability of GPUs in other hosts, such as 8.9. Repeat for several."
        ),
    ] = None,
    models_dir: Annotated[Path | None, folder_flag("Model repository (RETOUCH_MODELS_DIR).")] = None,
    engine_cache_dir: Annotated[
        Path | None, folder_flag("Engine cache to write to (RETOUCH_ENGINE_CACHE_DIR).")
    ] = None,
    max_batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Largest number of samples in a batch, as the server has it (RETOUCH_MAX_BATCH_SIZE)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Build the engines of the newest model versions into the engine cache, so that a server starts quickly.

    Run it with the settings of the server, while nothing else uses the GPU. The
    exit status is 1 if an engine cannot be built or kept.

    Example: retouch build photos --max-batch-size 8
    """
    from engines.engine_choice import candidates_for  # noqa: PLC0415 -- loads the engines
    from retouch.commands.engine_builds import build_model, newest_models  # noqa: PLC0415 -- as above
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    given = {
        "models_dir": models_dir,
        "engine": engine,
        "engine_cache_dir": engine_cache_dir,
        "max_batch_size": max_batch_size,
    }
    settings = load_settings({name: value for name, value in given.items() if value is not None})
    # errors only: the command's output already says everything else
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    found = newest_models(settings.models_dir, models or [])
    if compute_capability or any(candidate.keeps for candidate in candidates_for(settings.engine)):
        _check_cache(settings.engine_cache_dir)

    outcomes: list[dict[str, str | bool]] = []

    def print_json() -> None:
        if as_json:
            typer.echo(json.dumps(outcomes, indent=1))

    try:
        with ending_within(_END_S, print_json), _progress_bar(len(found)) as working_on:
            for directory, manifest in found:
                working_on(manifest.key)
                for built in build_model(directory, manifest, settings, compute_capability or []):
                    if not as_json:
                        typer.echo(f"{manifest.key} {built.what}: {built.outcome}")
                    outcomes.append({"model": manifest.key, **built._asdict()})
    finally:  # also after a lost GPU or a signal: earlier builds are reported
        print_json()
    if any(one["failed"] for one in outcomes):
        raise typer.Exit(1)


def _check_cache(folder: Path) -> None:
    """Check that the cache can be written: engines work without it, and only log a warning.

    Raises:
        CacheUnwritable: nothing that is built would be kept.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CacheUnwritable(
            f"the engine cache {folder} cannot be written ({error.strerror}); "
            "let this user write there, or choose another with --engine-cache-dir"
        ) from error


@contextmanager
def _progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    from rich.console import Console  # noqa: PLC0415 -- `retouch serve` runs without rich
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (SpinnerColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total, completed=-1)
        yield lambda model: progress.update(bar, advance=1, description=f"building {model}")
