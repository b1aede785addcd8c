"""`retouch doctor`: checks whether this host can serve the default models, and on which engines."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from engines.engine_names import EngineChoice
from engines.terminal.folders import folder_flag

if TYPE_CHECKING:
    from rich.table import Table

    from retouch.doctor.diagnosis import Diagnosis, ModelCheck

_SIGNS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[red]failed[/]"}


def doctor(
    models_dir: Annotated[Path | None, folder_flag("Model repository (RETOUCH_MODELS_DIR).")] = None,
    engine: Annotated[
        EngineChoice | None,
        typer.Option(
            metavar="NAME",
            help="Runtime to try: auto, trt, inductor, onnxrt-cuda, openvino, onnxrt or fake (RETOUCH_ENGINE).",
        ),
    ] = None,
    results_dir: Annotated[Path | None, folder_flag("Folder for results (RETOUCH_RESULTS_DIR).")] = None,
    engine_cache_dir: Annotated[Path | None, folder_flag("Engine cache (RETOUCH_ENGINE_CACHE_DIR).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check what this host can run: its hardware, packages and folders, and the engine of each model.

    The exit status is 0 only if this host can serve the default models.

    Example: retouch doctor --models-dir models
    """
    from retouch.commands.status_line import status_line  # noqa: PLC0415 -- loads rich
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    # errors only: the report already says everything else
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    given = {
        "models_dir": models_dir,
        "engine": engine,
        "results_dir": results_dir,
        "engine_cache_dir": engine_cache_dir,
    }
    settings = load_settings({name: value for name, value in given.items() if value is not None})
    with status_line("trying the engines on each model"):
        from retouch.doctor.diagnosis import HostSources, diagnose  # noqa: PLC0415 -- loads numpy and the engines

        diagnosis = diagnose(settings, HostSources())
    if as_json:
        typer.echo(diagnosis.model_dump_json(indent=1))
    else:
        show(diagnosis)
    if not diagnosis.ok:
        raise typer.Exit(1)


def show(diagnosis: Diagnosis) -> None:
    """Print the host, the models and the verdict."""
    from rich.console import Console  # noqa: PLC0415 -- `retouch serve` runs without it

    from engines.terminal.tables import print_table  # noqa: PLC0415 -- loads rich

    console = Console()
    print_table(_host_table(diagnosis), console)
    print_table(_model_table(diagnosis), console)
    for line in (f"{check.model}: {reason}" for check in diagnosis.models for reason in _reasons_for_engine(check)):
        console.print(line, markup=False, soft_wrap=True)
    verdict = (
        "this host can serve the default models"
        if diagnosis.ok
        else "this host cannot serve the default models: see what failed"
    )
    console.print(verdict, style="green" if diagnosis.ok else "bold red")


def _host_table(diagnosis: Diagnosis) -> Table:
    from rich.markup import escape  # noqa: PLC0415 -- `retouch serve` runs without it

    table = _make_table("Host", "what", "", "detail")
    for check in diagnosis.checks:
        table.add_row(escape(check.name), _SIGNS[check.level], escape(check.detail))
    return table


def _model_table(diagnosis: Diagnosis) -> Table:
    from rich.markup import escape  # noqa: PLC0415 -- as above

    table = _make_table("Models", "model", "", "engine", "smallest tile", "load")
    for check in diagnosis.models:
        engine = f"{check.engine} {check.precision} on {check.device}" if check.engine else "none"
        speed = (f"{check.infer_ms:.1f} ms", f"{check.load_s:.1f} s") if check.infer_ms is not None else ("", "")
        table.add_row(escape(check.model), _SIGNS[check.level], escape(engine), *speed)
    return table


def _reasons_for_engine(check: ModelCheck) -> list[str]:
    """Return the reasons for this engine and against better ones; engines with the same reason are grouped."""
    engines_by_reason: dict[str, list[str]] = {}
    for name, reason in check.passed_over.items():
        engines_by_reason.setdefault(reason, []).append(name)
    passed_over = [f"not {', '.join(names)}: {reason}" for reason, names in engines_by_reason.items()]
    return [part for part in (check.error, check.note, *passed_over) if part]


def _make_table(title: str, *columns: str) -> Table:
    from rich.table import Table  # noqa: PLC0415 -- `retouch serve` runs without it

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, no_wrap=column == "model")
    return table
