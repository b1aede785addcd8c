"""The commands of `retouch`. They import their libraries when they run, so `--help` stays fast."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_group

from engines.terminal.command_group import CommandGroup
from service.lifecycle.loading import without_collections

_PLACES = {
    "serve": "retouch.commands.serve:serve",
    "inpaint": "retouch.commands.fill:inpaint",
    "translate": "retouch.commands.fill:translate",
    "generate": "retouch.commands.fill:generate",
    "export": "retouch.commands.export:export",
    "import": "retouch.commands.import_graph:import_graph",
    "sweep": "retouch.sweep.command:sweep",
    "build": "retouch.commands.build:build",
    "doctor": "retouch.commands.doctor:doctor",
    "install-gpu": "retouch.commands.install_gpu:install_gpu",
    "bench": "retouch.bench.command:bench_app",
    "models": "retouch.commands.models:models_app",
    "keys": "retouch.commands.keys:keys_app",
}
"""The module of each command, and its function there, or its group of commands; in the order of the help."""


class _Commands(Mapping[str, Any]):
    """The commands by name, each loaded when it is first looked up: all together take longer than most of them run."""

    def __init__(self) -> None:
        self._load = cache(_load_command)

    def __getitem__(self, name: str) -> Any:
        return self._load(name, _PLACES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class _Retouch(CommandGroup):
    """The group of all commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands()  # type: ignore[assignment] # nothing adds commands

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 -- as in typer
        """Return a command; None if there is none of that name.

        `Mapping.get` would also return None for a command whose module raises KeyError while it is loaded.
        """
        return self.commands[cmd_name] if cmd_name in _PLACES else None


app = typer.Typer(
    name="retouch",
    cls=_Retouch,
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


def _load_command(name: str, place: str) -> Any:
    """Load the module of a command and return the command as typer makes it."""
    module, _, attribute = place.partition(":")
    with without_collections():
        found = getattr(import_module(module), attribute)
    alone = typer.Typer()
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    return get_group(alone).commands[name]
