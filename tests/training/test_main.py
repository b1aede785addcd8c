"""The command line of the training package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from training.__main__ import app

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = [command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_that_names_it(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert f"Example: python -m training {command}" in result.output


def test_the_command_starts_without_torch() -> None:
    code = "import sys, training.__main__; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "False"
