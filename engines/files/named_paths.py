"""Paths that people name in settings and flags."""

from __future__ import annotations

from pathlib import Path


def named_path(name: str | Path) -> Path:
    """Return the path of that name, with `~` expanded, as no shell does it in a file, a variable or `--flag=~/…`.

    Raises:
        ValueError: the name is empty, as from an unset variable of a script, and `Path("")` would be the current
            folder; or it begins with the home of a user whom the host does not have.
    """
    if name == "":
        raise ValueError("it is empty; name a path, or leave it out for the default")
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{Path(name).parts[0]} is no user's home on this host; write the whole path") from error
