"""Validates the values of a foreign request as options of an order. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from engines.validation import faults_message
from service.core.errors import InvalidOption, NotFound

OptionsT = TypeVar("OptionsT", bound=BaseModel)
IGNORED_HEADER = "X-Ignored-Fields"
_MODEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}(/[1-9][0-9]{0,8})?")
_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")
_MAX_NAMES = 40


def options_of(kind: type[OptionsT], values: Mapping[str, Any], names: Mapping[str, str] | None = None) -> OptionsT:
    """Validate values as options; one that is None or empty counts as absent.

    Args:
        kind: the class of the options.
        values: the values, by the names of the options.
        names: the foreign names of options, for messages.

    Raises:
        NotFound: the value of `model` cannot be the name of a model here.
        InvalidOption: a value is out of range; the message and `field` have the foreign name.
    """
    present = {name: value for name, value in values.items() if value is not None and value != ""}
    model = present.get("model")
    if model is not None and not _MODEL.fullmatch(str(model)):
        raise NotFound(
            f"no model {str(model)[:80]!r}; GET /v1/models lists them", code="model_not_found", field="model"
        )
    try:
        return kind.model_validate(present)
    except ValidationError as error:
        faults, fields = list[Mapping[str, Any]](), set[str]()
        for fault in error.errors(include_url=False):
            place = _renamed(fault["loc"], names or {})
            faults.append({**fault, "loc": place})
            fields.add(str(place[0]) if place else "")
        known = {(names or {}).get(name, name): field for name, field in kind.model_fields.items()}
        raise InvalidOption(
            faults_message(faults, "field", known), field=fields.pop() if len(fields) == 1 else ""
        ) from error


def _renamed(loc: tuple[int | str, ...], names: Mapping[str, str]) -> tuple[int | str, ...]:
    """Return the location of one of pydantic's errors, with the foreign name of its option."""
    return (names.get(str(loc[0]), loc[0]), *loc[1:]) if loc else loc


def check_same_model(name: str, current: str, advice: str) -> None:
    """Check that a client does not ask to switch the model of an API, because that would switch it for all clients.

    Args:
        name: the requested model.
        current: the model that fills.
        advice: the end of the message.

    Raises:
        InvalidOption: `name` is another model.
    """
    if name != current:
        raise InvalidOption(f"the model is {current!r} for all clients of this API; {name[:80]!r} {advice}")


def ignored_header(names: set[str]) -> dict[str, str]:
    """Return the header that names the fields of a request that were ignored; none if there were none."""
    shown = sorted(name for name in names if _NAME.fullmatch(name))[:_MAX_NAMES]
    return {IGNORED_HEADER: ", ".join(shown)} if shown else {}
