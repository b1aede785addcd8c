from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from engines.errors import ModelNotFound, RetouchError
from engines.terminal.command_group import CommandGroup
from service.core.settings import SettingsInvalid


@pytest.mark.parametrize(("error", "status"), [(ModelNotFound("no model a"), 1), (SettingsInvalid("no option b"), 2)])
def test_an_error_is_one_line_on_stderr_and_the_status_that_it_names(error: RetouchError, status: int) -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.command()
    def fails() -> None:
        raise error

    @app.command()
    def works() -> None:
        """A second command, as a single one would not be a group."""

    found = CliRunner().invoke(app, ["fails"])
    assert (found.exit_code, found.stderr, found.stdout) == (status, f"error: {error}\n", "")


def test_what_is_no_error_of_this_project_keeps_its_traceback() -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.callback()
    def fails() -> None:
        raise KeyError("a bug")

    @app.command()
    def works() -> None:
        """Never called."""

    assert isinstance(CliRunner().invoke(app, ["works"]).exception, KeyError)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--count", "9"], "Invalid value for '--count': it must be 1 to 8, not 9"),
        (["--count", "many"], "Invalid value for '--count': it must be a whole number, 1 to 8, not 'many'"),
        (["--rate", "0"], "Invalid value for '--rate': it must be at least 0.5, not 0"),
        (["--rate", "x" * 99], f"Invalid value for '--rate': it must be a number, at least 0.5, not '{'x' * 40}'"),
        (["--kind", "c"], "Invalid value for '--kind': 'c' is not one of 'a', 'b'."),
    ],
)
def test_a_number_that_a_flag_does_not_take_is_repeated_beside_those_that_it_takes(
    arguments: list[str], said: str
) -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.command()
    def takes(
        count: Annotated[int, typer.Option(min=1, max=8)] = 1,
        rate: Annotated[float, typer.Option(min=0.5)] = 1,
        kind: Literal["a", "b"] = "a",
    ) -> None:
        """Never called."""

    @app.command()
    def works() -> None:
        """A second command, as a single one would not be a group."""

    found = CliRunner().invoke(app, ["takes", *arguments], env={"COLUMNS": "200"})
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.replace("│", " ").split())


def test_a_file_that_cannot_be_used_is_one_line_that_names_it(tmp_path: Path) -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.command()
    def fails() -> None:
        (tmp_path / "file").touch()
        (tmp_path / "file").mkdir()

    @app.command()
    def works() -> None:
        """A second command, as a single one would not be a group."""

    found = CliRunner().invoke(app, ["fails"])
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith(f"error: {tmp_path / 'file'}: File exists; name another")


def test_of_two_files_the_one_that_was_to_be_replaced_is_named(tmp_path: Path) -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.command()
    def fails() -> None:
        (tmp_path / ".folder.partial").touch()
        (tmp_path / "folder").mkdir()
        (tmp_path / ".folder.partial").rename(tmp_path / "folder")

    @app.command()
    def works() -> None:
        """A second command, as a single one would not be a group."""

    assert CliRunner().invoke(app, ["fails"]).stderr.startswith(f"error: {tmp_path / 'folder'}: Is a directory")


def test_a_full_disk_under_a_file_is_not_blamed_on_the_output() -> None:
    app = typer.Typer(cls=CommandGroup)

    @app.command()
    def fails() -> None:
        Path("/dev/full").write_text("a checkpoint")

    @app.command()
    def works() -> None:
        """A second command, as a single one would not be a group."""

    found = CliRunner().invoke(app, ["fails"])
    assert found.exit_code == 1
    assert (
        found.stderr == "error: a file cannot be written: No space left on device; make room, or name another folder\n"
    )


@pytest.mark.parametrize(
    "arguments", [("models", "--models-dir", "{}", "--json"), ("--version",), ("--help",), ("keys", "--help")]
)
def test_a_full_disk_under_the_output_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "retouch", *(argument.format(tmp_path) for argument in arguments)]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr == "error: what is printed cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("encoding", "text", "printed"),
    [
        ("utf-8", "caf\udce9.png is 2 × 2", b"caf\xe9.png is 2 \xc3\x97 2\n"),
        ("iso-8859-1", "≥ 2 × 2", b"? 2 \xd7 2\n"),
    ],
)
def test_what_the_outputs_encoding_lacks_does_not_end_a_command(
    monkeypatch: pytest.MonkeyPatch, encoding: str, text: str, printed: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, newline="\n"))
    app = typer.Typer(cls=CommandGroup)

    @app.command()
    def says() -> None:
        typer.echo(text)

    @app.command()
    def works() -> None:
        """A second command, as a single one would not be a group."""

    app(["says"], standalone_mode=False)
    sys.stdout.flush()
    assert written.getvalue() == printed
