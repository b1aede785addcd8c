"""What the launcher tells a process that it starts, and what both know of its end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType
from typing import Literal

from pydantic import BaseModel, ConfigDict

from service.core.settings import Settings
from service.processes.shared.status_board import Places

_PR_SET_PDEATHSIG = 1


class Assignment(BaseModel):
    """One process's part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["front_end", "engine"]
    index: int
    """Among those of its role."""
    launcher: int
    """The launcher's process id."""
    settings: Settings
    """With this process's share of what is divided."""
    sockets: tuple[str, ...]
    """Where the engine processes listen, by index."""
    board: int
    """Descriptor of the board."""
    front_ends: int
    engines: int
    listener: int
    """Of an engine process: descriptor of its listening Unix socket. Of a front end: of its bound TCP socket."""
    device: str = ""
    """Of an engine process: what its device is called in metrics."""

    @property
    def places(self) -> Places:
        """The rows of the board."""
        return Places(self.front_ends, self.engines)


def end_with(launcher: int) -> None:
    """Let this process send itself SIGTERM, once, when the launcher ends, however it ends (Linux).

    The kernel tells of it by another signal: of a launcher with several threads more than once, and a second SIGTERM
    would cut the drain short.
    """
    told: list[int] = []

    def tell(_number: int, _frame: FrameType | None) -> None:
        if not told:
            told.append(launcher)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGUSR2, tell)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != launcher:  # it ended before the call
        sys.exit(0)
