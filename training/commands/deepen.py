"""`python -m training deepen`: starts a deeper FillNet from the weights of a shallower one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Overrides


def deepen(
    config: Annotated[Path, typer.Argument(help="TOML file of the deeper net's run, as for fit.")],
    weights: Annotated[Path, typer.Argument(help="FillNet of the same widths with fewer layers, generator.pth.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, for the option `initial` of the run.")],
    override: Overrides = None,
) -> None:
    """Write the weights of a FillNet with added layers, so that a deeper net starts from a trained one.

    Residual blocks and attention that the config has in addition begin almost at
    zero, so the net fills nearly as before, and they can learn.

    Example: python -m training deepen training/configs/fill-large.toml
    results/photos-5.pth -o results/deep.pth
    """
    from training.config import load_config  # noqa: PLC0415 -- loads torch
    from training.fill_config import FillConfig  # noqa: PLC0415
    from training.loop.checkpoints import save_generator  # noqa: PLC0415
    from training.weights.deepening import deepen_file  # noqa: PLC0415

    loaded = load_config(config, override or ())
    if not isinstance(loaded, FillConfig):
        raise typer.BadParameter("only FillNet is deepened", param_hint="CONFIG")
    state = deepen_file(weights, loaded.generator, loaded.seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    written = save_generator(output.parent, output.stem, state, half=True)
    typer.echo(f"wrote {written}")
