"""Settings that name several things, or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator


def listed(text: str) -> list[str]:
    """Return the names in a comma-separated text, without surrounding spaces and without empty names."""
    return [one.strip() for one in text.split(",") if one.strip()]


def _named(folder: object) -> object:
    if folder == "":  # as from an unset variable of a script; Path("") would be the current folder
        raise ValueError("it is empty; name a folder, or leave it out for the default")
    return folder


Folder = Annotated[Path, BeforeValidator(_named)]
"""A folder; an empty name is refused."""
