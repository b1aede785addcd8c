"""Flags that name a folder or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from engines.files.named_paths import named_path


def folder_flag(help_text: str, *declarations: str, **options: Any) -> Any:
    """Return an option of type `Path`, which `named_path` makes of the text.

    Args:
        help_text: help of the flag.
        declarations: its names; by default that of the parameter.
        options: further arguments of `typer.Option`.
    """
    return typer.Option(*declarations, help=help_text, parser=_named, metavar="FOLDER", **options)


def file_flag(help_text: str, *declarations: str, **options: Any) -> Any:
    """Return an option like `folder_flag`, for a file."""
    return typer.Option(*declarations, help=help_text, parser=_named, metavar="FILE", **options)


def _named(name: str | Path) -> Path:
    try:
        return named_path(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
