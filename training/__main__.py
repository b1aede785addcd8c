"""`python -m training gather|fit|plan|blend|unfold|evaluate|profile|ship`: a command imports torch only as it runs."""

from __future__ import annotations

import typer

from engines.command_group import CommandGroup
from training.blend_command import blend
from training.evaluate_command import evaluate
from training.fit_command import fit
from training.gather_command import gather
from training.plan_command import plan
from training.profile_command import profile
from training.ship_command import ship
from training.unfold_command import unfold

app = typer.Typer(
    name="training",
    cls=CommandGroup,
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
app.command()(unfold)
app.command()(evaluate)
app.command()(profile)
app.command()(ship)


def main() -> None:
    """Entry point of `python -m training`."""
    app(prog_name="python -m training")


if __name__ == "__main__":
    main()
