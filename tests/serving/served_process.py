"""The real command in a process of its own, which a test may kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


class ServedProcess:
    """`retouch serve` with the fake engine on a free port; `start` after `kill` is a restart on the same folders."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None, **settings: object) -> None:
        self._folder = folder
        self._environ = {**os.environ, **(environ or {})}
        self._starts = 0
        self._settings = {
            "port": 0,
            "models_dir": ROOT / "models",
            "engine": "fake",
            "results_dir": folder / "results",
            "engine_cache_dir": folder / "cache",
            **settings,
        }
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Of all starts."""
        return "".join(path.read_text("utf-8") for path in sorted(self._folder.glob("log*")))

    def start(self) -> ServedProcess:
        self._starts += 1
        log = self._folder / f"log{self._starts}"
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "retouch", "serve", *arguments], stderr=file, cwd=ROOT, env=self._environ
            )
        self.url = _until_ready(log, self.process)
        return self

    def kill(self) -> None:
        """As the kernel does it when the memory is short: nothing runs any more."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def __enter__(self) -> ServedProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def _until_ready(log: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines() if line[:1] + line[-1:] == "{}"]
        url = next((str(line["url"]) for line in lines if "url" in line), "")
        if url and httpx.get(f"{url}/readyz").status_code == 200:
            return url
        time.sleep(0.05)
    raise AssertionError(f"the server did not get ready: {log.read_text('utf-8')}")
