"""`make serve` says what it does while it installs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
case "$*" in
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *" --quiet "*) ;;
    *) echo "pip speaks" ;;
esac
"""
"""Stands for Python, and then for that of the virtual environment; pip speaks unless it is told not to."""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        (".venv/.serve", "what serving needs"),
        (".venv/.export", "what export needs"),
        (".venv/.dev", "what the tests need"),
    ],
)
def test_an_installation_says_what_it_installs_and_lets_pip_show_its_progress(
    tmp_path: Path, target: str, said: str
) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements/constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    command = ["make", "--silent", "--no-print-directory", target, f"PYTHON={python}"]
    lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "making the virtual environment .venv",
        f"installing {said} into .venv",
        "pip speaks",
    ]
