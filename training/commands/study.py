"""`python -m training study`: reruns a published training experiment and prints its figures beside the new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Device, Overrides
from training.study.sources import STUDIES

_CONFIGS = Path("training/configs")


def study(  # noqa: PLR0913, PLR0917 -- each is a flag
    name: Annotated[str, typer.Argument(help=f"Experiment to rerun: {', '.join(STUDIES)}.")],
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of a run, as for fit. By default the study's own in training/configs."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the figures. Cells that are in it already are not measured again."
        ),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help="Cells, in this order. By default fp32,tf32,bf16,bf16-compiled,fp16-compiled, the source's, best-2gpu."
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Number of timed steps of each cell, whose losses are compared.")
    ] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="Number of steps before them, which also compile.")] = 20,
    phase: Annotated[
        int | None, typer.Option(min=0, help="Phase to measure, counted from 0. By default the study's own.")
    ] = None,
    pictures: Annotated[int, typer.Option(min=1, help="Largest number of images of the data that are read.")] = 2000,
    lock_file: Annotated[
        Path | None, typer.Option(help="Studies with the same lock file time their steps one after another.")
    ] = None,
    limit_s: Annotated[
        float | None, typer.Option(min=1, help="Longest time in seconds for a cell, with the wait for the lock.")
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(help="Also list operators and count FLOPs, not only measure step time, power, memory and loss."),
    ] = True,
    override: Overrides = None,
    device: Device = None,
) -> None:
    """Rerun a published training experiment: compare precisions and compilation with FP32, at equal steps and seeds.

    A cell is a combination of precision and compilation, and runs in a process of
    its own. One that this machine cannot run is reported with the reason.

    Example: python -m training study pconv --output studies/pconv
    """
    from training.study.cells import BEST_ON_TWO, DEFAULT  # noqa: PLC0415 -- loads torch
    from training.study.session import StudyRequest, run_study  # noqa: PLC0415

    if name not in STUDIES:
        raise typer.BadParameter(f"{name!r}: known are {', '.join(STUDIES)}", param_hint="NAME")
    chosen = STUDIES[name]
    wanted = tuple(cells.split(",")) if cells else (*DEFAULT[:-1], *chosen.cells, BEST_ON_TWO)
    where = output or Path("results") / f"study-{name}"
    request = StudyRequest(
        study=chosen,
        config=config or _CONFIGS / chosen.config,
        overrides=(*(chosen.sizes if config is None else ()), *(override or ())),
        cells=tuple(dict.fromkeys(wanted)),
        output=where,
        steps=steps,
        warm_up=warm_up,
        phase=chosen.phase if phase is None and config is None else phase or 0,
        pictures=pictures,
        device=device,
        lock_file=lock_file,
        limit_s=limit_s,
        profiled=profile,
    )
    run_study(request, lambda line: typer.echo(line, err=True))
    typer.echo((where / "study.md").read_text("utf-8"))
