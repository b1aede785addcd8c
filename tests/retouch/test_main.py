from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from retouch.__main__ import app

COMMANDS = ["serve", "inpaint", "translate", "generate", "export", "models", "bench", "build", "doctor", "keys"]
HEAVY = {"numpy", "torch", "fastapi", "onnx", "onnxruntime", "openvino", "cv2", "httpx", "aiohttp", "matplotlib"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_the_list_of_commands_is_complete() -> None:
    groups = {group.name for group in app.registered_groups}
    assert groups | {command.name or command.callback.__name__ for command in app.registered_commands} == set(COMMANDS)


def test_version_is_that_of_the_installed_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"retouch {importlib.metadata.version('retouch')}\n"


def test_help_loads_no_model_library() -> None:
    code = f"import sys, retouch.__main__; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "retouch", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert all(f" {command} " in done.stdout for command in COMMANDS)
