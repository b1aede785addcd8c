"""Gives one of several jobs on a GPU exclusive use of it while it times something (../gpu_host/lanes.sh).

Jobs open engines concurrently with each other and with compilers. While a job has the lock, the other processes on its
GPU are stopped, including compilers. This file also runs under TensorRT's Python, so it uses only the standard library.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STEP = "LANE_STEP"


def step_marker() -> dict[str, str]:
    """Return environment variables that mark a process and its children as one step, so that they can be found."""
    return {_STEP: uuid.uuid4().hex}


@contextmanager
def gpu_lock() -> Iterator[None]:
    """Wait for the GPU and use it exclusively during the block; does nothing unless a lane started this process."""
    script, gpu = os.environ.get("LANE_SCRIPT"), os.environ.get("LANE_GPU", "")
    if not script:
        yield
        return
    # without LANE_GPU, the script does not stop itself
    environment = {name: value for name, value in os.environ.items() if name != "LANE_GPU"}
    with Path(os.environ["LANE_LOCK"]).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            keep = f"{_STEP}={os.environ[_STEP]}"
            subprocess.run(["bash", script, "pause", gpu, keep], env=environment, check=True)
            yield
        finally:
            subprocess.run(["bash", script, "resume", gpu], env=environment, check=True)
