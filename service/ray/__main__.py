"""`python -m service.ray REPLICA_PID`: becomes `retouch serve`, and is killed when the replica that started it ends.

The kernel keeps the parent-death signal across `execv`. A server that outlived its replica would hold the GPU that Ray
assigns to the next one. The proxy sends the requests of a killed server again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(replica: int) -> None:
    """Ask for SIGKILL at the end of the thread that started this process, and become the server.

    Raises:
        OSError: this is not Linux.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != replica:  # the replica ended before the call
        sys.exit(1)
    os.execv(sys.executable, [sys.executable, "-m", "retouch", "serve"])  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]))
