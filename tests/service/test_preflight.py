"""A setup that cannot work is one line and exit status 2, whichever process would have found it later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service.ledger.sqlite_file import LEDGER_FILE

pytestmark = pytest.mark.slow


def refused(models_dir: Path, tmp_path: Path, *more: object) -> list[str]:
    """The lines of a server that does not start, but for those that tell of the start itself."""
    options = ("--port", "0", "--engine", "fake", "--models-dir", models_dir, "--engine-cache-dir", tmp_path / "cache")
    command = [sys.executable, "-m", "retouch", "serve", *options, "--results-dir", tmp_path / "results", *more]
    with subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True) as server:
        try:
            _, said = server.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            server.terminate()
            raise
    assert server.returncode == 2, said
    starting, *lines = said.splitlines()
    assert '"event": "starting"' in starting
    return [line for line in lines if '"event": "processes"' not in line]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("content", [None, "no secret"])
def test_a_wrong_webhook_secret_stops_the_start(
    models_dir: Path, tmp_path: Path, workers: int, content: str | None
) -> None:
    path = tmp_path / "webhook-secrets"
    if content is not None:
        path.write_text(content)
    (said,) = refused(models_dir, tmp_path, "--workers", workers, "--webhook-secret-file", path)
    assert f"webhook_secret_file {path} is not lines of whsec_BASE64" in said


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_ledger_stops_the_start(models_dir: Path, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "results" / LEDGER_FILE
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    (said,) = refused(models_dir, tmp_path, "--workers", workers)
    assert f"the ledger {path} cannot be used" in said
    assert "move it away" in said
