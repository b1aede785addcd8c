"""Messages for invalid values that people wrote: settings, form fields, options and manifests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

_KIND = re.compile(r"constrained-\w+|literal\[.*\]")
"""Names that pydantic adds to the location of a field of union type: the member that the message is about."""
_OF_VALIDATOR = "Value error, "
"""The prefix that pydantic puts before the message of a validator."""
_BOUNDS = ("ge", "gt", "le", "lt")
"""Names that pydantic gives to the bounds of a number, in its errors and in the metadata of a field."""
_OUT_OF_BOUNDS = ("greater_than_equal", "greater_than", "less_than_equal", "less_than")
NO_NUMBER = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "a number"),
}
"""Kinds of number by pydantic's errors about values that are none."""
_NO_BOOL = ("bool_parsing", "bool_type")
_LONGEST_NUMBER = 40


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


def fault_message(fault: Mapping[str, Any], bounds: Mapping[str, Any] | None = None, *, quoted: bool = True) -> str:
    """Return the message of one of pydantic's errors: of a number what is allowed and what was given.

    Args:
        fault: the error.
        bounds: all bounds of the number, as pydantic names them; an error has only the one that was exceeded.
        quoted: whether to end with the number that was given.
    """
    return _joined_message([fault], bounds or {}, quoted=quoted)


def validation_message(error: ValidationError, what: str, known: Collection[str] = ()) -> str:
    """Return one message with every validation error of pydantic and its field; unknown names as by `unknown_name`.

    Args:
        error: raised by a model's validation; only numbers are quoted, because other values may be secret.
        what: the kind of the fields, as in `setting`.
        known: the valid names at the top level, or the fields of the model by name, which tell all bounds of a number.
    """
    return faults_message(error.errors(include_url=False), what, known)


def faults_message(faults: Iterable[Mapping[str, Any]], what: str, known: Collection[str] = ()) -> str:
    """Return one message as `validation_message` does, from errors of pydantic that a framework has collected."""
    unknown, invalid, bounds = list[str](), dict[str, list[Mapping[str, Any]]](), dict[str, dict[str, Any]]()
    for fault in faults:
        path = _field_path(fault["loc"])
        if fault["type"] == "extra_forbidden":
            unknown.append(unknown_name(what, path, known if len(fault["loc"]) == 1 else ()))
        else:
            invalid.setdefault(path, []).append(fault)
            field = known.get(path) if isinstance(known, Mapping) else None
            bounds[path] = bounds_of(field)
    messages = [
        (f"{path}: " if path else "") + _joined_message(about, bounds[path], quoted=True)
        for path, about in invalid.items()
    ]
    return "; ".join([*messages, *unknown])


def _joined_message(faults: Iterable[Mapping[str, Any]], bounds: Mapping[str, Any], *, quoted: bool) -> str:
    """Return the message about one value, which several kinds of a union may have refused."""
    said, numbers = list[str](), list[str]()
    for fault in faults:
        if fault["type"] in _OUT_OF_BOUNDS or fault["type"] in NO_NUMBER:
            said.append(_allowed_number(fault, bounds))
            numbers.append(_as_number(fault["input"]))
        elif fault["type"] == "literal_error":
            said.append(fault["ctx"]["expected"])
        elif fault["type"] in _NO_BOOL:
            said.append("true or false")
        else:
            return str(fault["msg"]).removeprefix(_OF_VALIDATOR)
    given = f", not {numbers[0]}" if quoted and numbers and numbers[0] else ""
    return f"it must be {', or '.join(said)}{given}"


def _allowed_number(fault: Mapping[str, Any], bounds: Mapping[str, Any]) -> str:
    exceeded = {name: value for name, value in fault.get("ctx", {}).items() if name in _BOUNDS}
    found = {name: _number_text(value) for name, value in {**bounds, **exceeded}.items()}
    low = f"at least {found['ge']}" if "ge" in found else f"more than {found['gt']}" if "gt" in found else ""
    high = f"at most {found['le']}" if "le" in found else f"less than {found['lt']}" if "lt" in found else ""
    both = " and ".join(part for part in (low, high) if part)
    allowed = f"{found['ge']} to {found['le']}" if {"ge", "le"} <= found.keys() else both
    return ", ".join(part for part in (NO_NUMBER.get(fault["type"], ""), allowed) if part)


def bounds_of(kind: object) -> dict[str, Any]:
    """Return the bounds of the number in a field or a type, also in a union with other types, by pydantic's names."""
    return dict(_bounds_in(kind))


def _bounds_in(kind: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, FieldInfo):
        metadata, inner = kind.metadata, (kind.annotation,)
    else:
        metadata, inner = list(getattr(kind, "__metadata__", ())), get_args(kind)
    for each in metadata:
        yield from ((name, getattr(each, name)) for name in _BOUNDS if getattr(each, name, None) is not None)
        if isinstance(each, FieldInfo):
            yield from _bounds_in(each)
    for each in inner:
        yield from _bounds_in(each)


def _as_number(value: object) -> str:
    """Return a number, or text that is one, as text; nothing for anything else, which may be secret."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    text = value.strip() if isinstance(value, str) else str(value)
    try:
        float(text)
    except ValueError:
        return ""
    return text if len(text) <= _LONGEST_NUMBER else f"{text[:_LONGEST_NUMBER]}…"


def _number_text(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _field_path(loc: Iterable[int | str]) -> str:
    return ".".join(str(part) for part in loc if not _KIND.fullmatch(str(part)))
