"""`python -m training profile`: measures where a training step's time goes, in each precision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from training.commands.flags import Device, Overrides

if TYPE_CHECKING:
    from training.config import Precision


def profile(  # noqa: PLR0913, PLR0917 -- each is a flag
    config: Annotated[Path, typer.Argument(help="TOML file of the run, as for fit.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for profile.json and roofline.png.")],
    precisions: Annotated[
        str,
        typer.Option(help="Precisions, in this order, separated by commas; the others are compared with the first."),
    ] = ("fp32,tf32,bf16,fp16"),
    steps: Annotated[int, typer.Option(min=1, help="Number of timed steps in each precision.")] = 20,
    phase: Annotated[int, typer.Option(min=0, help="Phase to measure, counted from 0.")] = 0,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Use torch.compile. Kernels are then listed instead of operators, without FLOPs and roofline.",
        ),
    ] = False,
    override: Overrides = None,
    device: Device = None,
) -> None:
    """Profile training steps: operators by device time, images/s, memory, power, and this device's roofline.

    Example: python -m training profile training/configs/photos.toml -o profile
    """
    from rich.console import Console  # noqa: PLC0415

    from engines.terminal.tables import print_table  # noqa: PLC0415
    from training.config import load_config  # noqa: PLC0415
    from training.profiling.session import ProfileRequest, operators_table, run_profile, steps_table  # noqa: PLC0415 -- loads torch

    loaded = load_config(config, override or ())
    if phase >= len(loaded.phase):
        raise typer.BadParameter(f"{phase}: the config has {len(loaded.phase)} phases", param_hint="--phase")
    request = ProfileRequest(loaded, output, _parse_precisions(precisions), steps, phase, compiled, device)
    found = run_profile(request, lambda step: typer.echo(step, err=True))
    console = Console()
    for figures in found.figures:
        print_table(operators_table(figures), console)
    print_table(steps_table(found.report), console)


def _parse_precisions(text: str) -> tuple[Precision, ...]:
    from training.config import Precision  # noqa: PLC0415

    known: tuple[Precision, ...] = get_args(Precision)
    wanted = text.split(",")
    if unknown := set(wanted) - set(known):
        raise typer.BadParameter(f"{sorted(unknown)}: known are {', '.join(known)}", param_hint="--precisions")
    return tuple(sorted((name for name in known if name in wanted), key=wanted.index))
