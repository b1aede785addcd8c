"""`make serve` reports its progress while it installs, and looks for a GPU unless `CPU=1`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from retouch.gpu_setup.record import RECORD_FILE

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
case "$*" in
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$(dirname "$0")/retouch" .venv/bin/ ;;
    *" pip=="*) exit 1 ;;
    *" --quiet "*) ;;
    *) echo "pip speaks${PYTHONDONTWRITEBYTECODE:+ and keeps nothing that it compiles}" ;;
esac
"""
"""A fake Python, also of the virtual environment; its pip prints unless told to be quiet, and finds no newer
pip, as on hosts without an index."""

RETOUCH = """#!/bin/sh
echo "retouch $*"
case "$*" in "$FAILS") exit 1 ;; esac
"""
"""A fake `retouch`, which fails when called with the arguments in `FAILS`."""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A fake Python in a checkout with only the Makefile."""
    for name in ("Makefile", "pyproject.toml", "requirements/constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, script in {"python": PYTHON, "retouch": RETOUCH}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    return tmp_path / "python"


def make(python: Path, *arguments: str, fails: str = "never") -> subprocess.CompletedProcess[str]:
    command = ["make", "--silent", "--no-print-directory", *arguments, f"PYTHON={python}"]
    environ = {key: value for key, value in os.environ.items() if key != "CPU"} | {"FAILS": fails}
    return subprocess.run(command, cwd=python.parent, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (".venv/.serve", "what serving needs"),
        (".venv/.export", "what export needs"),
        (".venv/.dev", "what the tests need"),
    ],
)
def test_an_installation_says_what_it_installs_and_lets_pip_show_its_progress(
    python: Path, target: str, said: str
) -> None:
    assert [line.split(",")[0] for line in make(python, target).stdout.splitlines()] == [
        "making the virtual environment .venv",
        f"installing {said} into .venv",
        "pip speaks",
    ]


def test_what_is_compiled_is_kept_also_where_the_environment_says_otherwise(
    python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert make(python, ".venv/.serve").stdout.splitlines()[-1] == "pip speaks"


def commands_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("retouch ")]


def test_serve_installs_what_a_gpu_needs_before_it_serves(python: Path) -> None:
    assert commands_of(make(python, "serve")) == ["retouch install-gpu", "retouch serve"]


def test_serve_without_a_gpu_on_request_installs_nothing_for_one(python: Path) -> None:
    assert commands_of(make(python, "serve", "CPU=1")) == ["retouch serve --device cpu"]


@pytest.mark.parametrize("value", ["0", "x86_64", ""])
def test_another_value_of_cpu_which_a_shell_may_export_does_not_leave_the_gpu_out(python: Path, value: str) -> None:
    assert commands_of(make(python, "serve", f"CPU={value}")) == ["retouch install-gpu", "retouch serve"]


def test_serve_says_what_is_missing_without_a_compiler_and_serves_all_else(python: Path) -> None:
    without = make(python, "serve", "CPU=1")
    (said,) = [line for line in without.stdout.splitlines() if "texture=copied" in line]
    assert "g++" in said
    assert commands_of(without) == ["retouch serve --device cpu"]
    compiled = python.parent / "service/imaging/texture/_patch_match.abi3.so"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    assert "texture=copied" not in make(python, "serve", "CPU=1").stdout


def test_what_is_said_without_a_compiler_helps_once_there_is_one(python: Path) -> None:
    make(python, "serve", "CPU=1")
    assert "pip speaks" not in make(python, "serve", "CPU=1").stdout
    (python.parent / ".venv/.serve").unlink()
    assert "pip speaks" in make(python, "serve", "CPU=1").stdout


def test_serve_ends_where_the_gpus_packages_cannot_be_installed_and_serves_on_the_cpu_on_request(python: Path) -> None:
    failed = make(python, "serve", fails="install-gpu")
    assert failed.returncode != 0
    assert commands_of(failed) == ["retouch install-gpu"]
    (python.parent / ".venv" / RECORD_FILE).write_text("{}")
    assert commands_of(make(python, "serve", "CPU=1", fails="install-gpu")) == [
        "retouch install-gpu --undo-unfinished",
        "retouch serve --device cpu",
    ]
