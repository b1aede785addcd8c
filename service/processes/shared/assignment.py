"""The assignment that the launcher gives to a process, and the signal to a process whose launcher has ended."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from types import FrameType
from typing import Literal

from pydantic import BaseModel, ConfigDict

from engines.errors import RetouchError
from service.core.settings import Settings
from service.processes.shared.status_board import RowCounts

_PR_SET_PDEATHSIG = 1


class CodeChanged(RetouchError):
    """The package was changed under a running server."""


class Assignment(BaseModel):
    """The role of one process and what it needs to start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    """The launcher's `code_version`."""
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
    cores_for_pictures: int = 0
    """Cores that all front ends may use for pictures while few requests are in flight."""

    @property
    def row_counts(self) -> RowCounts:
        """Numbers of rows of the status board."""
        return RowCounts(self.front_ends, self.engines)


def read_assignment(content: bytes, code: str) -> Assignment:
    """Read an assignment in a process that has started with this `code_version`.

    Raises:
        CodeChanged: the launcher has another, so that this process would misread what the others write.
    """
    launchers = json.loads(content).get("code")  # first: another version may have other fields
    if launchers != code:
        raise CodeChanged(
            f"the package was changed under a running server, which was started with {launchers or 'an older one'} and "
            f"finds {code} now: restart the server"
        )
    return Assignment.model_validate_json(content)


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
