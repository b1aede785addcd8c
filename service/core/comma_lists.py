"""Settings that name several things."""

from __future__ import annotations


def listed(text: str) -> list[str]:
    """Return what a text names, separated by commas; spaces around names and empty names are left out."""
    return [one.strip() for one in text.split(",") if one.strip()]
