"""Runs benchmarks/gpu_host/lanes.sh with a separate state folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "benchmarks/gpu_host/lanes.sh"
CORE = str(min(os.sched_getaffinity(0)))


class Lanes:
    """Lanes with their state and output under a test's folder."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "lanes"
        self.out = folder / "out"
        self.out.mkdir()
        self.environment = {**os.environ, "LANES": str(self.state), "OUT": str(self.out), "PACK": str(self.state)}

    def call(self, *words: str, code: int = 0) -> str:
        """Call the script, which must exit with `code`; returns its output."""
        done = subprocess.run(
            ["bash", SCRIPT, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done
        return done.stdout + done.stderr

    def until_written(self, *files: str) -> None:
        """Wait until each of these files, given as JOB/FILE, is not empty."""
        for file in files:
            waiting = f"until [ -s {self.state}/jobs/{file} ]; do sleep 0.1; done"
            subprocess.run(["bash", "-c", waiting], check=True, timeout=60)

    def code(self, job: str) -> str:
        return (self.state / "jobs" / job / "code").read_text().strip()

    def log(self, job: str) -> str:
        return (self.state / "jobs" / job / "log").read_text()
