"""Detects NVIDIA GPUs from device files, without importing any CUDA library."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

_NODES = ("nvidiactl", "nvidia0", "dxg")  # device nodes of the Linux driver, and of WSL


def visible_gpus(environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """Return the GPUs of this process, each as CUDA_VISIBLE_DEVICES names it; empty if there are none (Linux only).

    CUDA numbers the visible GPUs from 0, whatever the numbers of their nodes: a container's only GPU may be `nvidia3`.
    """
    if (chosen := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for name in chosen.split(",") if (gpu := name.strip()) and gpu != "-1"]
    nodes = [node for node in dev.glob("nvidia[0-9]*") if node.name.removeprefix("nvidia").isdecimal()]
    return [str(index) for index in range(len(nodes))]


def has_nvidia_gpu(dev: Path = Path("/dev"), platform: str = sys.platform) -> bool:
    """Return whether the kernel shows an NVIDIA device; True on systems other than Linux, where CUDA must decide."""
    return not platform.startswith("linux") or any((dev / node).exists() for node in _NODES)
