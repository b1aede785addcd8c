"""Takes a GPU that several jobs of a host share for what is timed (../gpu_host/lanes.sh): the rest need not wait.

Jobs open engines beside each other, and beside compilers; who times something has the turn, and the others on its GPU,
compilers too, stand still meanwhile. Also under TensorRT's own Python, so it needs nothing.
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


def of_one_step() -> dict[str, str]:
    """Return what the environment of a process needs, so that it and all that it begins are told from others."""
    return {_STEP: uuid.uuid4().hex}


@contextmanager
def gpu_turn() -> Iterator[None]:
    """Wait for the GPU and have it alone; does nothing in a process that no lane has begun."""
    script, gpu = os.environ.get("LANE_SCRIPT"), os.environ.get("LANE_GPU", "")
    if not script:
        yield
        return
    environment = {name: value for name, value in os.environ.items() if name != "LANE_GPU"}  # it must not stop itself
    with Path(os.environ["LANE_TURN"]).open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            keep = f"{_STEP}={os.environ[_STEP]}"
            subprocess.run(["bash", script, "hush", gpu, keep], env=environment, check=True)
            yield
        finally:
            subprocess.run(["bash", script, "speak", gpu], env=environment, check=True)
