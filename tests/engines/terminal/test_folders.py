"""Flags that name a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from engines.terminal.folders import folder_flag


def chosen(*arguments: str) -> tuple[int, list[Path | None], str]:
    """Run a command with a folder; returns the exit status, the path that it got, and its standard error."""
    got: list[Path | None] = []
    app = typer.Typer()

    @app.command()
    def _command(
        into: Annotated[Path | None, folder_flag("where it goes")] = None,
        cache: Annotated[Path, folder_flag("what is kept", "--cache-dir", envvar="CACHE")] = Path("cache"),
    ) -> None:
        got.extend((into, cache))

    result = CliRunner().invoke(app, arguments, env={"CACHE": ""})
    return result.exit_code, got, result.stderr


@pytest.mark.parametrize(
    ("arguments", "folders"),
    [
        ([], [None, Path("cache")]),
        (["--into", "a/b", "--cache-dir", "."], [Path("a/b"), Path()]),
    ],
)
def test_a_folder_is_a_path_and_by_default_that_of_the_command(arguments: list[str], folders: list[Path]) -> None:
    assert chosen(*arguments) == (0, folders, "")


@pytest.mark.parametrize("flag", ["--into", "--cache-dir"])
def test_an_empty_name_is_refused_and_is_not_the_folder_one_is_in(flag: str) -> None:
    status, got, said = chosen(flag, "")
    assert (status, got) == (2, [])
    assert f"Invalid value for '{flag}'" in said
    assert "it is empty; name a path" in " ".join(said.replace("│", "").split())


def test_the_home_folder_may_be_written_as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/studio")
    assert chosen("--into=~/models") == (0, [Path("/home/studio/models"), Path("cache")], "")
    status, got, said = chosen("--into=~nobody-here/models")
    assert (status, got) == (2, [])
    assert "~nobody-here is no user's home on this host" in " ".join(said.replace("│", "").split())
