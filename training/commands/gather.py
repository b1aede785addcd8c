"""`python -m training gather`: collects photographs from many sources into shards for training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engines.terminal.end_signals import ending_in_order

if TYPE_CHECKING:
    from collections import Counter

_BROKEN_SHOWN = 20
"""Broken files of a source that are named; a damaged copy of a data set may have thousands."""


def gather(
    recipe: Annotated[
        Path, typer.Argument(help="TOML file that names the sources, such as training/photographs.toml.")
    ],
    root: Annotated[Path, typer.Option(help="Folder that contains the sources.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the shards and their manifest, photos.json.")
    ],
    held_out: Annotated[
        list[Path] | None, typer.Option(help="Folder of images that must not be trained on. Repeat for several.")
    ] = None,
) -> None:
    """Gather photographs for training: decode, screen, deduplicate, shrink and pack them into tar shards.

    Example: python -m training gather training/photographs.toml --root sources -o
    data/photos
    """
    from training.gather.gathering import gather as run  # noqa: PLC0415 -- loads OpenCV
    from training.gather.recipe import read_recipe  # noqa: PLC0415

    sources = Path(os.path.abspath(root))  # noqa: PTH100
    with ending_in_order():
        manifest = run(read_recipe(recipe), sources, output, held_out or [], _print_source_report)
    size_mib = sum(manifest["shards"].values()) / 2**20
    typer.echo(f"{manifest['pictures']} pictures, {len(manifest['shards'])} shards, {size_mib:.0f} MiB in {output}")


def _print_source_report(name: str, counts: Counter[str], broken: list[str]) -> None:
    typer.echo(f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.items()), err=True)
    for path in broken[:_BROKEN_SHOWN]:
        typer.echo(f"  {path!r} is broken: no complete picture; copy it again, or remove it", err=True)
    if (more := len(broken) - _BROKEN_SHOWN) > 0:
        typer.echo(f"  and {more} more are broken", err=True)
