"""Messages for invalid values that people wrote: settings, form fields, options and manifests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

_KIND = re.compile(r"constrained-\w+|literal\[.*\]")
"""Names that pydantic adds to the location of a field of union type: the member that the message is about."""
_OF_VALIDATOR = "Value error, "
"""The prefix that pydantic puts before the message of a validator."""


def unknown_name(what: str, name: str, known: Collection[str]) -> str:
    """Return the message for an unknown name, with the nearest known name if one is similar.

    Args:
        what: the kind of name, as in `setting`.
        name: the unknown name.
        known: the valid names.
    """
    nearest = get_close_matches(name.lower(), {each.lower(): each for each in known}, n=1)
    meant = next((each for each in known if nearest and each.lower() == nearest[0]), None)
    return f"unknown {what} {name[:80]}" + (f"; did you mean {meant}?" if meant else "")


def fault_message(fault: Mapping[str, Any]) -> str:
    """Return the message of one of pydantic's errors, without pydantic's prefix."""
    return str(fault["msg"]).removeprefix(_OF_VALIDATOR)


def validation_message(error: ValidationError, what: str, known: Collection[str] = ()) -> str:
    """Return one message with every validation error of pydantic and its field; unknown names as by `unknown_name`.

    Args:
        error: raised by a model's validation; values are not quoted, because they may be secret.
        what: the kind of the fields, as in `setting`.
        known: the valid names at the top level.
    """
    return faults_message(error.errors(include_url=False), what, known)


def faults_message(faults: Iterable[Mapping[str, Any]], what: str, known: Collection[str] = ()) -> str:
    """Return one message as `validation_message` does, from errors of pydantic that a framework has collected."""
    unknown, invalid = list[str](), dict[str, list[str]]()
    for fault in faults:
        path = _field_path(fault["loc"])
        if fault["type"] == "extra_forbidden":
            unknown.append(unknown_name(what, path, known if len(fault["loc"]) == 1 else ()))
        else:
            invalid.setdefault(path, []).append(fault_message(fault))
    messages = [(f"{path}: " if path else "") + ", or ".join(said) for path, said in invalid.items()]
    return "; ".join([*messages, *unknown])


def _field_path(loc: Iterable[int | str]) -> str:
    return ".".join(str(part) for part in loc if not _KIND.fullmatch(str(part)))
