"""A server of several processes that ends with its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.service.processes.launcher.real_processes import Server
from tests.serving.served_process import SERVE, ServedProcess


@pytest.fixture
def start(models_dir: Path, tmp_path: Path, short_folder: Path) -> Iterator[Callable[..., Server]]:
    """Start `retouch serve`, or another command, with settings; remaining processes are killed after the test."""
    started: list[ServedProcess] = []

    def run(command: Sequence[str] = SERVE, **settings: object) -> Server:
        folder = tmp_path / f"start-{len(started)}"
        folder.mkdir()
        chosen = {"workers": 2, "models_dir": models_dir, "results_dir": tmp_path / "results", **settings}
        started.append(ServedProcess(folder, {"TMPDIR": str(short_folder)}, command, **chosen))
        started[-1].launch()
        return Server(started[-1], short_folder)

    yield run
    for served in started:
        launcher = served.process
        left = psutil.Process(launcher.pid).children(recursive=True) if launcher.poll() is None else []
        launcher.kill()
        launcher.wait(10)
        for process in left:
            process.kill()
