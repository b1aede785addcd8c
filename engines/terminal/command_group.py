"""The group of commands that both command lines of this project are."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from engines.errors import RetouchError


class CommandGroup(TyperGroup):
    """Turns an error of this project into one line on stderr and the exit status that it names."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RetouchError as error:
            typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(error.exit_status) from error
