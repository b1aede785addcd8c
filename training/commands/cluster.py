"""`python -m training cluster`: styles of each class for pix2pixHD, from the features of its encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.commands.flags import Overrides


def cluster(
    config: Annotated[Path, typer.Argument(help="TOML file of the run, as for fit.")],
    weights: Annotated[Path, typer.Argument(help="Generator of that run with its encoder, generator.pth.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, for `retouch export`.")],
    count: Annotated[int, typer.Option(min=1, max=256, help="Number of styles of each class.")] = 10,
    override: Overrides = None,
) -> None:
    """Write the weights of a pix2pixHD generator with styles that its exported model draws from.

    Such a model needs no reference image. The styles are clusters of the
    encoder's features on the training data.

    Example: python -m training cluster training/configs/facades-labels.toml
    runs/labels/generator.pth -o styled.pth
    """
    from training.config import load_config  # noqa: PLC0415
    from training.loop.checkpoints import save_generator  # noqa: PLC0415 -- loads torch
    from training.pix2pixhd_config import Pix2PixHDConfig  # noqa: PLC0415
    from training.weights.clustering import cluster_features  # noqa: PLC0415

    loaded = load_config(config, override or ())
    if not isinstance(loaded, Pix2PixHDConfig):
        raise typer.BadParameter("only pix2pixhd has a feature encoder", param_hint="CONFIG")
    state = cluster_features(loaded, weights, count)
    output.parent.mkdir(parents=True, exist_ok=True)
    typer.echo(f"wrote {save_generator(output.parent, output.stem, state, half=loaded.half_weights)}")
