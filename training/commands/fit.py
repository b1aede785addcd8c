"""`python -m training fit`: trains a generator as configured in a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Device, Overrides


def fit(
    config: Annotated[
        Path, typer.Argument(help="TOML file of the run; those of the shipped models are in training/configs.")
    ],
    override: Overrides = None,
    stop_after_seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Save and end after so many seconds, at the next step (with several processes at the next line of "
            "the log). The same command continues from there.",
        ),
    ] = None,
    device: Device = None,
) -> None:
    """Train a generator; a run that was interrupted or killed continues from its last checkpoint.

    Under torchrun, with one process for each GPU, the same global batch is
    divided among them.

    Example: python -m training fit training/configs/photos.toml --set
    output=runs/photos
    """
    from training.config import load_config  # noqa: PLC0415 (loads torch)
    from training.fit import fit as train  # noqa: PLC0415
    from training.loop.runtime import start_runtime  # noqa: PLC0415

    loaded = load_config(config, override or ())
    with start_runtime(loaded, device) as runtime:
        outcome = train(loaded, runtime, stop_after_seconds)
    if runtime.is_leader:
        what = "finished" if outcome.finished else outcome.reason or "stopped; run the same command to continue"
        typer.echo(f"step {outcome.step} of {outcome.total}: {what}; weights in {outcome.generator}")
