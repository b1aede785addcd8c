"""`python -m training blend`: interpolates between two generators of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def blend(
    first: Annotated[
        Path, typer.Argument(help="A generator, such as generator-phase0.pth, with smaller pixel differences.")
    ],
    second: Annotated[
        Path, typer.Argument(help="One that was trained further from it, such as generator.pth, with sharper fills.")
    ],
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the second, 0 to 1: 0 gives the first, 1 the second.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, with the data types of the second.")],
) -> None:
    """Write the weights that lie between two generators of one run.

    Pixel losses and feature losses favour different fills; interpolating between
    a net and its fine-tuned version gives every compromise (Wang et al.,
    "ESRGAN", 2018, section 3.4). Choose the share on pictures that are not used
    for reported figures.

    Example: python -m training blend generator-phase0.pth generator.pth --share
    0.5 -o blended.pth
    """
    from training.weights.blending import blend_files  # noqa: PLC0415 (loads torch)

    blend_files(first, second, share, output)
    typer.echo(f"wrote {output}: {share:g} of {second}, {1 - share:g} of {first}")
