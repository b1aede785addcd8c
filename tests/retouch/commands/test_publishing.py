"""Code that the commands that publish models share."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog

from retouch.commands.publishing import show_steps


def test_steps_and_what_is_logged_meanwhile_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with show_steps() as notify:
        notify("comparing")
        structlog.get_logger().warning("compiled library is not used")
    said = capsys.readouterr()
    assert said.out == "", "a program reads the JSON there"
    assert "comparing" in said.err
    assert "compiled library is not used" in said.err
    structlog.get_logger().warning("afterwards")
    assert "afterwards" in capsys.readouterr().out, "as before"


@pytest.mark.usefixtures("_end_signals_as_a_shell_leaves_them")
def test_a_closed_terminal_leaves_nothing_half_made(tmp_path: Path) -> None:
    with pytest.raises(SystemExit), show_steps(), TemporaryDirectory(prefix=".export-", dir=tmp_path):
        os.kill(os.getpid(), signal.SIGHUP)
    assert list(tmp_path.iterdir()) == []
