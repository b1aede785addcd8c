"""TOML that people write: settings, training's configs and recipes."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        ValueError: it is not TOML, or nested more deeply than the parser can follow.
    """
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply; write NAME = VALUE") from error
    return values
