"""The commands that export.sh makes of its arguments, recorded by a fake `retouch`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docker.compose_file import DOCKER

pytestmark = pytest.mark.slow


def called(tmp_path: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run export.sh; returns its exit status and the arguments of each call of `retouch`."""
    retouch = tmp_path / "retouch"
    retouch.write_text('#!/bin/sh\necho "$*" >> "$CALLS"\n')
    retouch.chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "RETOUCH_MODELS_DIR": "/models",
    }
    done = subprocess.run([DOCKER / "export.sh", *arguments], env=environ, capture_output=True, check=False)
    calls = tmp_path / "calls"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


DEFAULTS = "--images /source/tests/data --output /models"


@pytest.mark.parametrize("name", [("--name", "mine"), ("--name=mine",)])
def test_a_checkpoint_is_exported_to_where_the_servers_look_and_its_engines_are_built(
    tmp_path: Path, name: tuple[str, ...]
) -> None:
    expected = [f"export {DEFAULTS} /checkpoints/a.pth {' '.join(name)}", "build mine --models-dir /models"]
    assert called(tmp_path, "/checkpoints/a.pth", *name) == (0, expected)


def test_flags_that_are_given_come_after_the_defaults_and_so_win(tmp_path: Path) -> None:
    _, (export, _) = called(tmp_path, "a.pth", "--name", "mine", "--images", "/mine")
    assert export == f"export {DEFAULTS} a.pth --name mine --images /mine"


@pytest.mark.parametrize("output", [("--output", "/else"), ("--output=/else",)])
def test_engines_are_built_of_the_model_where_it_was_put(tmp_path: Path, output: tuple[str, ...]) -> None:
    _, (_, build) = called(tmp_path, "a.pth", "--name", "mine", *output)
    assert build == "build mine --models-dir /else"


@pytest.mark.parametrize("alone", [("--help",), ("a.pth", "--program-only", "/models/a/1"), ("--program-only=/m/a/1",)])
def test_what_makes_no_model_needs_no_name_and_builds_nothing(tmp_path: Path, alone: tuple[str, ...]) -> None:
    assert called(tmp_path, *alone) == (0, [f"export {DEFAULTS} {' '.join(alone)}"])


def test_a_model_without_a_name_is_not_exported(tmp_path: Path) -> None:
    assert called(tmp_path, "a.pth") == (2, [])
    assert called(tmp_path, "a.pth", "--name") == (2, [])
