"""A child of the launcher that only sleeps."""

from __future__ import annotations

import subprocess

from service.processes.launcher.child import Child


class Sleeper(Child):
    """A child that sleeps, and ignores some signals."""

    def __init__(self, name: str, ignored: str = "") -> None:
        self.last_heartbeat_at = 0.0
        self.ended_pids: list[int] = []
        trap = f"trap '' {ignored}; " if ignored else ""
        self._script = f"{trap}echo; exec sleep 600"
        super().__init__(name, self._sleep, self.ended_pids.append, lambda: self.last_heartbeat_at)

    def _sleep(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sh", "-c", self._script], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as said:
            said.readline()  # from here on the signals are ignored
        return process

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def await_end(self) -> int:
        """Wait until the process has ended; it is reaped by the next check."""
        assert self.process is not None
        return self.process.wait(30)

    def is_signalled(self) -> bool:
        """Whether a signal has ended the process, which may take a moment."""
        assert self.process is not None
        try:
            self.process.wait(0.05)
        except subprocess.TimeoutExpired:
            return False
        return True
