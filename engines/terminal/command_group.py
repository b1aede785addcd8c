"""The command group of both command lines of this project."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from engines.errors import RetouchError

_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk. One without a file's name comes from standard output, redirected to a file."""


class CommandGroup(TyperGroup):
    """Turns an error of this project into one line on stderr and the exit status that it names.

    Likewise for standard output that is redirected to a file on a full disk.
    """

    def make_context(self, *arguments: Any, **named: Any) -> Any:  # prints the help and the version
        with _errors_as_lines():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        with _errors_as_lines():
            return super().invoke(ctx)


@contextmanager
def _errors_as_lines() -> Iterator[None]:
    try:
        yield
    except RetouchError as error:
        typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(error.exit_status) from error
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        typer.secho(f"error: what is printed cannot be written: {error.strerror}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error
