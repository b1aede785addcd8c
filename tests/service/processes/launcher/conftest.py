"""A server of several processes, which ends with its test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.service.processes.launcher.real_processes import Server


@pytest.fixture
def start(models_dir: Path, tmp_path: Path, short_folder: Path) -> Iterator[Callable[..., Server]]:
    """Start `retouch serve` with settings; whatever is left of it is killed after the test."""
    started: list[tuple[subprocess.Popen[bytes], list[psutil.Process]]] = []

    def run(**settings: object) -> Server:
        chosen = {
            "port": 0,
            "engine": "fake",
            "workers": 2,
            "models_dir": models_dir,
            "results_dir": tmp_path / "results",
            "engine_cache_dir": tmp_path / "cache",
            **settings,
        }
        environ = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()}
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as file:
            launcher = subprocess.Popen(
                [sys.executable, "-m", "retouch", "serve"],
                env={**os.environ, **environ, "TMPDIR": str(short_folder)},
                stderr=file,
            )
        started.append((launcher, []))
        return Server(launcher, log, short_folder)

    yield run
    for launcher, _ in started:
        left = psutil.Process(launcher.pid).children(recursive=True) if launcher.poll() is None else []
        launcher.kill()
        launcher.wait(10)
        for process in left:
            process.kill()
