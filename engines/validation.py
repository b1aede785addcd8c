"""What is wrong with values that people wrote, in this project's words: settings, form fields, options, manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from pydantic import ValidationError


def unknown_name(what: str, name: str, known: Collection[str]) -> str:
    """Say that nothing is called `name`, and what was probably meant: the nearest of the known names, if one is near.

    Args:
        what: the kind of name, as in `setting`.
        name: what was written.
        known: what could have been.
    """
    nearest = get_close_matches(name.lower(), {each.lower(): each for each in known}, n=1)
    meant = next((each for each in known if nearest and each.lower() == nearest[0]), None)
    return f"unknown {what} {name[:80]}" + (f"; did you mean {meant}?" if meant else "")


def faults(error: ValidationError, what: str, known: Collection[str] = ()) -> str:
    """Every fault that pydantic found, with its place; unknown names as `unknown_name` says it.

    Args:
        error: as a model's validation raised it; values are never quoted, they may be secret.
        what: the kind of the names, as in `setting`.
        known: the names at the top level.
    """
    parts = []
    for fault in error.errors(include_url=False):
        place = _place(fault["loc"])
        if fault["type"] == "extra_forbidden":
            parts.append(unknown_name(what, place, known if len(fault["loc"]) == 1 else ()))
        else:
            parts.append(f"{place}: {fault['msg']}" if place else str(fault["msg"]))
    return "; ".join(parts)


def _place(loc: Iterable[int | str]) -> str:
    return ".".join(map(str, loc))
