"""`python -m training`: the commands of training; torch is imported only when a command runs."""

from __future__ import annotations

import typer

from engines.terminal.command_group import CommandGroup
from training.commands.blend import blend
from training.commands.cluster import cluster
from training.commands.deepen import deepen
from training.commands.evaluate import evaluate
from training.commands.fit import fit
from training.commands.gather import gather
from training.commands.plan import plan
from training.commands.profiling import profile
from training.commands.ship import ship
from training.commands.study import study
from training.commands.unfold import unfold

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
app.command()(deepen)
app.command()(cluster)
app.command()(evaluate)
app.command()(profile)
app.command()(study)
app.command()(ship)


def main() -> None:
    """Run the command line; the entry point of `python -m training`."""
    app(prog_name="python -m training")


if __name__ == "__main__":
    main()
