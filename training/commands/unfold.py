"""`python -m training unfold`: converts an exported model back to weights that training can start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Overrides


def unfold(
    config: Annotated[Path, typer.Argument(help="TOML file of the run that will start from the weights, as for fit.")],
    model: Annotated[
        Path,
        typer.Argument(
            help="Folder of the model version, models/NAME/VERSION: a FillNet or a partial-convolution net."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, for the option `initial` of the run.")],
    crops: Annotated[
        int, typer.Option(min=2, help="Number of crops on which the statistics of batch norms are measured.")
    ] = 192,
    override: Overrides = None,
) -> None:
    """Write the weights of an exported model, so that training can start from them.

    The statistics of batch norms, which an export folds away, are measured again
    on the images of the run.

    Example: python -m training unfold training/configs/fill-continued.toml
    models/photos/5 -o results/photos-5.pth
    """
    from training.config import PConvConfig, load_config  # noqa: PLC0415
    from training.fill_config import FillConfig  # noqa: PLC0415
    from training.loop.checkpoints import save_generator  # noqa: PLC0415 -- loads torch
    from training.nets.partial_conv import checkpoint_state  # noqa: PLC0415
    from training.weights.unfolding import unfold as run  # noqa: PLC0415
    from training.weights.unfolding import unfold_fillnet  # noqa: PLC0415

    loaded = load_config(config, override or ())
    if isinstance(loaded, FillConfig):
        state = unfold_fillnet(model)
    elif isinstance(loaded, PConvConfig):
        state = checkpoint_state(run(model, loaded, crops))
    else:
        raise typer.BadParameter("only FillNet and partial-convolution nets are unfolded", param_hint="CONFIG")
    output.parent.mkdir(parents=True, exist_ok=True)
    written = save_generator(output.parent, output.stem, state, half=isinstance(loaded, FillConfig))
    typer.echo(f"wrote {written}")
