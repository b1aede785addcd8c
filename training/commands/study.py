"""`python -m training study`: reruns a published training experiment and prints its figures beside the new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Device, Overrides
from training.study.sources import STUDIES

_CONFIGS = Path("training/configs")


def study(  # noqa: PLR0913, PLR0917 -- each is a flag
    name: Annotated[str, typer.Argument(help=f"experiment to rerun: {', '.join(STUDIES)}")],
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of that model, as for fit; by default the study's own in training/configs"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="folder; cells in it are not measured again")
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help="cells, in this order; by default fp32,tf32,bf16,bf16-compiled,fp16-compiled, the source's, best-2gpu"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="timed steps of each cell; their losses are compared")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="steps before them, which also compile")] = 20,
    phase: Annotated[
        int | None, typer.Option(min=0, help="phase to measure, counted from 0; by default the study's own")
    ] = None,
    pictures: Annotated[int, typer.Option(min=1, help="maximum number of pictures of the data that are read")] = 2000,
    turn: Annotated[
        Path | None, typer.Option(help="lock file with which concurrent studies time their steps one after another")
    ] = None,
    limit_s: Annotated[
        float | None, typer.Option(min=1, help="seconds that a cell may take, including the wait for its turn")
    ] = None,
    profile: Annotated[
        bool, typer.Option(help="list operators and count FLOPs, or measure only step time, power, memory and loss")
    ] = True,
    override: Overrides = None,
    device: Device = None,
) -> None:
    """Rerun a published training experiment: compare precisions and compilation with FP32, at equal steps and seeds.

    Every cell runs in its own process. A cell that this machine cannot run is reported as not run, with the reason.
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
        turn=turn,
        limit_s=limit_s,
        profiled=profile,
    )
    run_study(request, lambda line: typer.echo(line, err=True))
    typer.echo((where / "study.md").read_text("utf-8"))
