"""The commands of `retouch`. They import their libraries when they run, so `--help` stays fast."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from engines.terminal.command_group import CommandGroup
from retouch.bench.command import bench_app
from retouch.commands.build import build
from retouch.commands.doctor import doctor
from retouch.commands.export import export
from retouch.commands.fill import generate, inpaint, translate
from retouch.commands.import_graph import import_graph
from retouch.commands.install_gpu import install_gpu
from retouch.commands.keys import keys_app
from retouch.commands.models import models_app
from retouch.commands.serve import make_serve_command
from retouch.sweep.command import sweep

app = typer.Typer(
    name="retouch",
    cls=CommandGroup,
    help="Serve trained image-to-image generators over HTTP, run them on files, and add models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    """Print the version of the installed package and exit if `--version` is given."""
    if asked:
        typer.echo(f"retouch {importlib.metadata.version('retouch')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # evaluated by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept the options that come before the command's name."""


app.command("serve")(make_serve_command())
app.command()(inpaint)
app.command()(translate)
app.command()(generate)
app.command()(export)
app.command("import")(import_graph)
app.command()(sweep)
app.command()(build)
app.add_typer(bench_app, name="bench")
app.add_typer(models_app, name="models")
app.add_typer(keys_app, name="keys")
app.command()(doctor)
app.command("install-gpu")(install_gpu)
