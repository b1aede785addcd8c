"""The assignment that the launcher gives to a process, and the signals by which the launcher ends it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Literal

from pydantic import BaseModel, ConfigDict

from engines.errors import RetouchError
from service.core.settings import Settings
from service.processes.shared.status_board import RowCounts

SECOND_REQUEST = signal.SIGUSR2
"""Signal by which a launcher passes on a second request to end to its front ends (`EndRequests`)."""
_PR_SET_PDEATHSIG = 1


class CodeChanged(RetouchError):
    """The installed package was changed while the server ran."""


class Assignment(BaseModel):
    """The role of one process, and the values that it needs to start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    """The launcher's `code_version`."""
    role: Literal["front_end", "engine"]
    index: int
    """Index among the processes of its role."""
    launcher: int
    """The launcher's process id."""
    settings: Settings
    """The server's settings, with this process's share of the limits."""
    sockets: tuple[str, ...]
    """Paths of the engine processes' sockets, by index, through descriptors that this process inherits."""
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

    def to_json(self) -> bytes:
        """Return the assignment as ASCII; pydantic's own JSON cannot hold a path whose bytes are not UTF-8."""
        return json.dumps(self.model_dump(), default=str).encode("ascii")

    @property
    def row_counts(self) -> RowCounts:
        """Numbers of rows on the status board."""
        return RowCounts(self.front_ends, self.engines)


def read_assignment(content: bytes, code: str) -> Assignment:
    """Parse an assignment, in a process whose `code_version` is `code`.

    Raises:
        CodeChanged: the launcher's code version differs, so this process could misread shared memory and messages.
    """
    sent = json.loads(content)
    launchers = sent.get("code")  # read first: another version may have other fields
    if launchers != code:
        raise CodeChanged(
            f"the package was changed under a running server, which was started with {launchers or 'an older one'} and "
            f"finds {code} now: restart the server"
        )
    return Assignment.model_validate(sent)


def end_with_launcher(launcher: int) -> None:
    """Make the kernel send SIGTERM to this process when the launcher ends, for whatever reason (Linux).

    It comes several times if the launcher has several threads; a repeated SIGTERM changes nothing in these processes.

    Raises:
        OSError: the kernel refused the request.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != launcher:  # the launcher ended before the call
        sys.exit(0)
