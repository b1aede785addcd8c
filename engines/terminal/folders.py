"""Flags that name a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def folder_flag(help_text: str, *declarations: str, **options: Any) -> Any:
    """Return an option of type `Path` that refuses an empty name, such as that of an unset variable in a script.

    `Path("")` would be the current folder. `~` is expanded, because bash leaves it as it is in `--output=~/models`.

    Args:
        help_text: help of the flag.
        declarations: its names; by default that of the parameter.
        options: further arguments of `typer.Option`.
    """
    return typer.Option(*declarations, help=help_text, parser=_named, metavar="FOLDER", **options)


def _named(folder: str | Path) -> Path:
    if folder == "":
        raise typer.BadParameter("it is empty; name a folder, or leave it out for the default")
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise typer.BadParameter(f"{folder}: the host has no such user; write the whole path") from error
