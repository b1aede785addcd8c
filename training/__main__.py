"""`python -m training gather|fit|plan|blend|evaluate|profile|ship`. A command imports torch only when it runs."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from engines.errors import RetouchError
from training.blend_command import blend
from training.errors import ConfigInvalid
from training.evaluate_command import evaluate
from training.fit_command import fit
from training.gather_command import gather
from training.plan_command import plan
from training.profile_command import profile
from training.ship_command import ship


class TrainingGroup(TyperGroup):
    """Turns an error of this project into one line on stderr: exit 2 for a config, as for bad flags, 1 otherwise."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RetouchError as error:
            typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(2 if isinstance(error, ConfigInvalid) else 1) from error


app = typer.Typer(
    name="training",
    cls=TrainingGroup,
    help="Train the generators that Retouch serves, and measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Train the generators that Retouch serves, and measure them."""


app.command()(gather)
app.command()(fit)
app.command()(plan)
app.command()(blend)
app.command()(evaluate)
app.command()(profile)
app.command()(ship)


def main() -> None:
    """Entry point of `python -m training`."""
    app(prog_name="python -m training")


if __name__ == "__main__":
    main()
