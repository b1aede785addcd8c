"""Settings that name several things, or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def listed(text: str) -> list[str]:
    """Return the names in a comma-separated text, without surrounding spaces and without empty names."""
    return [one.strip() for one in text.split(",") if one.strip()]


def _expanded(folder: Path) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{folder.parts[0]} is no user's home on this host; write the whole path") from error


Folder = Annotated[Path, AfterValidator(_expanded)]
"""A folder. `~` is expanded, as no shell does it in a file, a variable or `--flag=~/…`."""
