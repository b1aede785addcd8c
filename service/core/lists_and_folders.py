"""Settings that name several things, a folder or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def listed(text: str) -> list[str]:
    """Return the names in a comma-separated text, without surrounding spaces and without empty names."""
    return [one.strip() for one in text.split(",") if one.strip()]


def expanded(path: Path) -> Path:
    """Return a path with the home folder in place of `~`, as no shell does it in a file, a variable or `--flag=~/…`.

    Raises:
        ValueError: the host has no such user.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path.parts[0]} is no user's home on this host; write the whole path") from error


Folder = Annotated[Path, AfterValidator(expanded)]
"""A folder. `~` is expanded."""
File = Annotated[str, AfterValidator(lambda name: str(expanded(Path(name))) if name else "")]
"""A file, or empty for none. `~` is expanded."""
