"""Functions run without coverage or the garbage collector where other projects' code would take most of their time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def untraced(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function, run without the tracer of its thread."""

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*arguments, **options)
        finally:
            sys.settrace(tracer)

    return call


def uncollected(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function, run without garbage collections if they are on."""

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return function(*arguments, **options)
        finally:
            if was_on:
                gc.enable()

    return call
