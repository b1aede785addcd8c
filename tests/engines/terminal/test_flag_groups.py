from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from engines.terminal.flag_groups import expanded


@dataclass(frozen=True)
class Volume:
    level: Annotated[int, typer.Option(min=0, help="how loud")] = 3
    mute: Annotated[bool, typer.Option("--mute")] = False


@expanded
def play(song: Annotated[str, typer.Argument()], times: int = 1, *, volume: Volume) -> None:
    """Play a song."""
    typer.echo(f"{song} {times} {volume}")


def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(play)
    return made


def test_a_command_has_the_flags_of_its_group_with_their_defaults_and_checks() -> None:
    runner = CliRunner()
    assert runner.invoke(app(), ["one"]).output == "one 1 Volume(level=3, mute=False)\n"
    given = ["two", "--times", "2", "--level", "5", "--mute"]
    assert runner.invoke(app(), given).output == "two 2 Volume(level=5, mute=True)\n"
    assert runner.invoke(app(), ["three", "--level", "-1"]).exit_code == 2


def test_a_command_keeps_its_own_help() -> None:
    printed = CliRunner().invoke(app(), ["--help"]).output
    assert "Play a song." in printed
    assert "how loud" in printed
    assert "--volume" not in printed
