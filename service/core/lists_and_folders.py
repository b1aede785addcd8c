"""Settings that name several things, or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator


def listed(text: str) -> list[str]:
    """Return the names in a comma-separated text, without surrounding spaces and without empty names."""
    return [one.strip() for one in text.split(",") if one.strip()]


def _named(folder: object) -> object:
    if folder == "":  # as from an unset variable of a script; Path("") would be the current folder
        raise ValueError("it is empty; name a folder, or leave it out for the default")
    return folder


def _expanded(folder: Path) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{folder.parts[0]} is no user's home on this host; write the whole path") from error


Folder = Annotated[Path, BeforeValidator(_named), AfterValidator(_expanded)]
"""A folder; an empty name is refused. `~` is expanded, as no shell does it in a file, a variable or `--flag=~/…`."""
