"""The `retouch` command. Its modules import what they need when they run: `retouch --help` loads no model library."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from engines.errors import RetouchError
from retouch.bench.command import bench_app
from retouch.build_command import build
from retouch.doctor_command import doctor
from retouch.export_command import export
from retouch.fill_command import generate, inpaint, translate
from retouch.keys_command import keys_app
from retouch.models_command import models
from retouch.serve_command import make_serve_command
from service.settings import SettingsInvalid


class RetouchGroup(TyperGroup):
    """Turns an error of this project into one line on stderr: exit 2 for settings, as for bad flags, 1 otherwise."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RetouchError as error:
            typer.secho(f"error: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(2 if isinstance(error, SettingsInvalid) else 1) from error


app = typer.Typer(
    name="retouch",
    cls=RetouchGroup,
    help="Fill holes in photographs and translate images with trained generators: over HTTP, or here.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(make_serve_command())
app.command()(inpaint)
app.command()(translate)
app.command()(generate)
app.command()(export)
app.command()(build)
app.command()(models)
app.add_typer(bench_app, name="bench")
app.add_typer(keys_app, name="keys")
app.command()(doctor)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
