"""Commands that take seconds show a status line on terminals only."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from retouch.commands.status_line import status_line

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_line_is_shown_on_a_terminal_alone(terminal: bool) -> None:
    text = StringIO()
    with status_line("loading torch", Console(file=text, force_terminal=terminal, width=80)):
        pass
    assert ("loading torch" in text.getvalue()) is terminal


def on_a_terminal(*arguments: str) -> str:
    """Run a command on a pseudo-terminal; returns all its output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "retouch", *arguments]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=ROOT, env=environ) as process:
        os.close(theirs)
        pieces = []
        while piece := _read(ours):
            pieces.append(piece)
        process.wait(120)
    os.close(ours)
    return b"".join(pieces).decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux raises an error when the other side is closed
        return b""


def test_commands_that_load_models_or_torch_say_so_first(tmp_path: Path) -> None:
    (tmp_path / "net.pth").write_bytes(b"no checkpoint")
    exported = on_a_terminal("export", str(tmp_path / "net.pth"), f"--output={tmp_path}")
    assert exported.index("loading torch") < exported.index("not a torch checkpoint")
    picture, mask = (str(ROOT / f"tests/data/{name}") for name in ("dress.jpg", "dress_mask.png"))
    folder = f"--models-dir={tmp_path}"
    result = on_a_terminal("inpaint", picture, mask, f"--out={tmp_path / 'filled.png'}", folder)
    assert result.index("loading the model") < result.index("no model photos")
    examined = on_a_terminal("doctor", folder, f"--results-dir={tmp_path}", f"--engine-cache-dir={tmp_path}")
    assert examined.index("trying the engines") < examined.index("Host")
