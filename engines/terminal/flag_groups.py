"""Groups of flags that several commands share: a dataclass with an annotated field for each flag."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each parameter that is a group replaced by the group's flags.

    Args:
        command: a function for Typer; defaults of its parameters and of a group's fields are the flags' defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    flags = [
        flag.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        for flag in (
            _flags_of(groups[parameter.name])
            if parameter.name in groups
            else [parameter.replace(annotation=hints[parameter.name])]
        )
    ]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        made = {
            name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **made)

    called.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined] # read by inspect.signature
    called.__annotations__ = {flag.name: flag.annotation for flag in flags}
    return called


def _flags_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(group).parameters.values()
    ]
