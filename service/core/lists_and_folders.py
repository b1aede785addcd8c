"""Settings that name several things, a folder or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from engines.files.named_paths import named_path


def listed(text: str) -> list[str]:
    """Return the names in a comma-separated text, without surrounding spaces and without empty names."""
    return [one.strip() for one in text.split(",") if one.strip()]


Folder = Annotated[Path, AfterValidator(named_path)]
"""A folder. `~` is expanded."""
File = Annotated[str, AfterValidator(lambda name: str(named_path(name)) if name else "")]
"""A file, or empty for none. `~` is expanded."""
