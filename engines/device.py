"""Is there a GPU at all: asked before anything of CUDA is imported, and answered without it."""

from __future__ import annotations

import sys
from pathlib import Path

_NODES = ("nvidiactl", "nvidia0", "dxg")  # the driver's own, and WSL's


def has_nvidia_gpu(dev: Path = Path("/dev"), platform: str = sys.platform) -> bool:
    """Whether the kernel shows an NVIDIA device; True where that cannot be seen (not Linux), so that CUDA answers."""
    return not platform.startswith("linux") or any((dev / node).exists() for node in _NODES)
