"""Is there a GPU at all: asked before anything of CUDA is imported, and answered without it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

_NODES = ("nvidiactl", "nvidia0", "dxg")  # the driver's own, and WSL's


def visible_gpus(environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """The GPUs of this process, each as CUDA_VISIBLE_DEVICES names it; empty without any (Linux).

    CUDA counts from 0 what is there, whichever numbers the nodes have: a container's only GPU may be `nvidia3`.
    """
    if (chosen := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for name in chosen.split(",") if (gpu := name.strip()) and gpu != "-1"]
    nodes = [node for node in dev.glob("nvidia[0-9]*") if node.name.removeprefix("nvidia").isdecimal()]
    return [str(index) for index in range(len(nodes))]


def has_nvidia_gpu(dev: Path = Path("/dev"), platform: str = sys.platform) -> bool:
    """Whether the kernel shows an NVIDIA device; True where that cannot be seen (not Linux), so that CUDA answers."""
    return not platform.startswith("linux") or any((dev / node).exists() for node in _NODES)
