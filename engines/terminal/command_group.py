"""The command group of both command lines of this project."""

from __future__ import annotations

import errno
import io
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from engines.errors import RetouchError

_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk, which name no file when a write fails."""


_PRINTERS = ("click", "rich", "typer")


class CommandGroup(TyperGroup):
    """Turns an error of this project into one line on stderr and the error's exit status.

    Likewise an error about a file that the user named, and a full disk, with exit status 1. A number that a flag does
    not take is repeated beside those that it takes.
    """

    def make_context(self, *arguments: Any, **named: Any) -> Any:  # this call prints the help and the version
        _let_print_any_text(sys.stdout)
        with _errors_as_lines():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        with _errors_as_lines():
            return super().invoke(ctx)


def _let_print_any_text(stream: object) -> None:
    """Let a stream print file names that are not UTF-8, as their bytes, and characters its encoding lacks, as `?`.

    Standard error can print any text already.
    """
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="surrogateescape" if stream.encoding.lower() == "utf-8" else "replace")


@contextmanager
def _errors_as_lines() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as error:
        error.message = _said_of_value(error) or error.message
        raise
    except RetouchError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(error.exit_status) from error
    except OSError as error:
        if (said := _said_of(error)) is None:
            raise
        typer.secho(f"error: {said}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error


def _said_of_value(error: Any) -> str | None:
    """Return the message for a value of a flag that pydantic refused; None for another error.

    Releases of typer before 0.29 did not use pydantic, and repeat the value themselves.
    """
    if error.param is None or not (refused := getattr(error.__cause__, "errors", None)):
        return None
    from engines.validation import NO_NUMBER, fault_message  # noqa: PLC0415 -- loads pydantic

    fault, names = refused()[0], (("min", "ge"), ("max", "le"))
    bounds = {name: bound for flag, name in names if (bound := getattr(error.param, flag, None)) is not None}
    said = fault_message(fault, bounds)
    if fault["type"] in NO_NUMBER and ", not " not in said:  # text may be shown: unlike settings, flags are not secret
        return f"{said}, not {str(fault['input'])[:40]!r}"
    return said  # without the prefix that pydantic puts before the message of a validator


def _said_of(error: OSError) -> str | None:
    """Return the line for an error about a file or a full disk; None for other errors, which are bugs."""
    if (name := error.filename if error.filename2 is None else error.filename2) is not None:  # the second: a target
        return f"{name}: {error.strerror}; name another file or folder, or let this user use it"
    if error.errno not in _FULL:
        return None
    if _was_printing(error):
        return f"what is printed cannot be written: {error.strerror}"
    return f"a file cannot be written: {error.strerror}; make room, or name another folder"


def _was_printing(error: OSError) -> bool:
    """Return whether a package that prints raised the error: the system does not say which device was full."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return str(innermost.f_globals.get("__name__")).partition(".")[0] in _PRINTERS
