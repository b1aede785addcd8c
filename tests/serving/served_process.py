"""The real `retouch serve` as a subprocess, which a test may signal or kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from tests.serving.waiting import wait_until

ROOT = Path(__file__).parents[2]
SERVE = (sys.executable, "-m", "retouch", "serve")
MAX_START_S = 300.0
"""Longest time for a start on a busy machine, in seconds."""
_OWN_LIMIT_S = 30.0
_LOG_TAIL = 40_000


class ServedProcess:
    """A process of `retouch serve` with the fake engine on a free port; `start` after `kill` restarts it.

    Args:
        folder: folder of its results, caches and log; kept across restarts.
        environ: additional environment variables.
        command: the command to start, which reads its settings from the environment.
        settings: settings that replace the tests' defaults.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str] | None = None,
        command: Sequence[str | Path] = SERVE,
        **settings: object,
    ) -> None:
        chosen = {
            "port": 0,
            "models_dir": ROOT / "models",
            "engine": "fake",
            "workers": 0,
            "results_dir": folder / "results",
            "engine_cache_dir": folder / "cache",
            **settings,
        }
        variables = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()}
        self.folder, self._command = folder, command
        self._environ = {**os.environ, **variables, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self._served = 0

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the last start."""
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def log(self) -> str:
        """The log of all starts."""
        return "".join(path.read_text("utf-8") for path in sorted(self.folder.glob("served-*.log")))

    def lines(self, event: str) -> list[dict[str, object]]:
        """Return the log's lines of an event, oldest first, without an incomplete last line."""
        whole, _, _ = self.log.rpartition("\n")
        found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in found if line.get("event") == event]

    def start(self, *, ready: bool = True) -> ServedProcess:
        """Start the process and wait until it listens and, with `ready`, is ready; AssertionError if it ends before."""
        self.launch()
        return self.wait(ready=ready)

    def wait(self, *, ready: bool = True) -> ServedProcess:
        """Wait until a process that was launched listens and, with `ready`, is ready; see `start`."""
        wait_until(self._listens, MAX_START_S)
        self.url = str(self.lines("serving")[-1]["url"])
        if ready:
            with httpx.Client(base_url=self.url, timeout=60) as client:  # one: each reads certificates for 50 ms
                wait_until(lambda: self._ended() or client.get("/readyz").status_code == 200, MAX_START_S)
        return self

    def launch(self) -> None:
        """Start the process without waiting."""
        self._served = len(self.lines("serving"))
        number = len(list(self.folder.glob("served-*.log"))) + 1  # a log for each start in this folder
        with (self.folder / f"served-{number:02}.log").open("wb") as file:
            self._process = subprocess.Popen([*map(str, self._command)], stderr=file, cwd=ROOT, env=self._environ)

    def _listens(self) -> bool:
        ended = self.process.poll() is not None  # asked first: it may serve and end while its log is read
        found = len(self.lines("serving")) > self._served
        assert found or not ended, f"the server ended: {self.log}"
        return found

    def _ended(self) -> bool:
        assert self.process.poll() is None, f"the server ended: {self.log}"
        return False

    def hang_next_batch(self) -> Path:
        """Let the fake engine's next batch never end; the file that is returned exists until that batch begins."""
        from engines.fake import FAULT_FILE  # noqa: PLC0415 -- clients' tests lack pydantic, which it imports

        fault = self.folder / "cache" / FAULT_FILE
        fault.parent.mkdir(exist_ok=True)
        fault.with_suffix(".new").write_text("hang")
        return fault.with_suffix(".new").replace(fault)

    def kill(self) -> None:
        """Kill the process with SIGKILL, as the kernel does when memory is short."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end and return the exit status."""
        self.process.terminate()
        return self.ended()

    def ended(self, timeout_s: float = 60.0) -> int:
        """Wait for the exit and return its status; AssertionError with stacks and the log if the time runs out."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._ask_for_stacks()
            with suppress(subprocess.TimeoutExpired):  # the server's own end limit logs more: what its tasks wait for
                self.process.wait(_OWN_LIMIT_S)
            raise AssertionError(f"it has not ended within {timeout_s:.0f} s:\n{self.log[-_LOG_TAIL:]}") from None

    def _ask_for_stacks(self) -> None:
        """Make each process write the stacks of its threads to the log, by SIGUSR1."""
        asked = [self.process.pid]
        for process in asked:  # not psutil, which the environments of the clients' tests lack
            with suppress(OSError):  # the process has ended
                asked += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
                os.kill(process, signal.SIGUSR1)

    def __enter__(self) -> ServedProcess:
        try:
            return self.start()
        except BaseException:  # also when the tests are interrupted: without this the server would stay
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
