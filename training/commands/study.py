"""`python -m training study`: reruns a source's training experiment and prints its figures beside those found here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Device, Overrides
from training.study.sources import STUDIES

_CONFIGS = Path("training/configs")


def study(  # noqa: PLR0913, PLR0917 -- each is a flag
    name: Annotated[str, typer.Argument(help=f"whose experiment: {', '.join(STUDIES)}")],
    config: Annotated[
        Path | None, typer.Option(help="TOML file of that model, as for fit; else the study's own in training/configs")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="folder; cells that it has are not measured again")
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help="in this order; else fp32,tf32,bf16,bf16-compiled,fp16-compiled, what the source needs, best-2gpu"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="timed steps of each cell; their losses are compared")] = 100,
    warm_up: Annotated[int, typer.Option(min=0, help="steps before them, with compilation")] = 20,
    phase: Annotated[int | None, typer.Option(min=0, help="whose steps, counted from 0; else the study's own")] = None,
    pictures: Annotated[int, typer.Option(min=1, help="of the data, at most: the others are not read")] = 2000,
    turn: Annotated[
        Path | None, typer.Option(help="a file by which studies that run at once time their steps one at a time")
    ] = None,
    limit_s: Annotated[
        float | None, typer.Option(min=1, help="the longest that a cell may take; waiting for its turn counts")
    ] = None,
    apart: Annotated[
        bool, typer.Option(help="list operators and count FLOPs; without: steps, power, memory, losses alone")
    ] = True,
    override: Overrides = None,
    device: Device = None,
) -> None:
    """Rerun a source's training experiment: precisions and compilation against FP32, at equal steps from equal seeds.

    Every cell runs in a process of its own. One that this machine cannot run is reported as not run, with the reason.
    """
    from training.study.cells import BEST_ON_TWO, DEFAULT  # noqa: PLC0415 -- loads torch
    from training.study.session import StudyRequest, run_study  # noqa: PLC0415

    if name not in STUDIES:
        raise typer.BadParameter(f"{name!r}: known are {', '.join(STUDIES)}", param_hint="NAME")
    chosen = STUDIES[name]
    wanted = tuple(cells.split(",")) if cells else (*DEFAULT[:-1], *chosen.cells, BEST_ON_TWO)
    where = output or Path("results") / f"study-{name}"
    request = StudyRequest(
        chosen,
        config or _CONFIGS / chosen.config,
        (*(chosen.sizes if config is None else ()), *(override or ())),
        tuple(dict.fromkeys(wanted)),
        where,
        steps,
        warm_up,
        chosen.phase if phase is None and config is None else phase or 0,
        pictures,
        device,
        turn,
        limit_s,
        apart,
    )
    run_study(request, lambda line: typer.echo(line, err=True))
    typer.echo((where / "study.md").read_text("utf-8"))
