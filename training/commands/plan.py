"""`python -m training plan`: computes how many steps of each phase fit into a given time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Device, Overrides


def plan(
    config: Annotated[Path, typer.Argument(help="TOML file of the run, as for fit.")],
    seconds: Annotated[
        float, typer.Option(min=1, help="Time in seconds for all steps, without start and compilation.")
    ],
    override: Overrides = None,
    device: Device = None,
) -> None:
    """Measure a few steps of each phase, and print the flags with which `fit` takes the given time.

    Example: python -m training plan training/configs/photos.toml --seconds 3600
    """
    from training.config import load_config  # noqa: PLC0415 (loads torch)
    from training.fit import make_trainee  # noqa: PLC0415
    from training.loop.planning import measure_and_plan  # noqa: PLC0415
    from training.loop.runtime import start_runtime  # noqa: PLC0415

    loaded = load_config(config, override or ())
    with start_runtime(loaded, device) as runtime:
        found = measure_and_plan(loaded, runtime, make_trainee, seconds, partial(typer.echo, err=True))
    for index, speed in enumerate(found.images_per_s):
        shown = f"{speed:.0f}" if speed >= 10 else f"{speed:.2g}"
        typer.echo(f"phase {index}: {shown} images/s", err=True)
    typer.echo(" ".join(f"--set phase.{index}.steps={steps}" for index, steps in enumerate(found.steps)))
