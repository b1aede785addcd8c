"""The assignment that the launcher gives to a process, and the signal to a process whose launcher has ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType
from typing import Literal

from pydantic import BaseModel, ConfigDict

from service.core.settings import Settings
from service.processes.shared.status_board import RowCounts

_PR_SET_PDEATHSIG = 1


class Assignment(BaseModel):
    """The role of one process and what it needs to start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["front_end", "engine"]
    index: int
    """Index among the processes of its role."""
    launcher: int
    """The launcher's process id."""
    settings: Settings
    """Settings, with this process's share of the limits."""
    sockets: tuple[str, ...]
    """Paths of the engine processes' sockets, by index."""
    board: int
    """Descriptor of the status board."""
    front_ends: int
    engines: int
    listener: int
    """Descriptor of an engine process's listening Unix socket, or of a front end's bound TCP socket."""
    device: str = ""
    """Label of an engine process's device in metrics."""

    @property
    def row_counts(self) -> RowCounts:
        """Numbers of rows of the status board."""
        return RowCounts(self.front_ends, self.engines)


def end_with_launcher(launcher: int) -> None:
    """Make this process send itself one SIGTERM when the launcher ends, however it ends (Linux).

    The kernel notifies by SIGUSR2, which it may send several times if the launcher has several threads; a second
    SIGTERM would cut the drain short unless it came at once (EndRequests).
    """
    sent: list[int] = []

    def terminate(_number: int, _frame: FrameType | None) -> None:
        if not sent:
            sent.append(launcher)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGUSR2, terminate)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != launcher:  # it ended before the call
        sys.exit(0)
