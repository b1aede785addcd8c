"""Decisions of the launcher: which processes there are, what each gets, and when one is started again."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from engines.cuda.gpu_detection import visible_gpus
from service.core.gpu_use import why_on_cpu
from service.core.settings import Settings
from service.lifecycle.host import cores_of_container

_DIVIDED = ("max_memory_mb", "spool_max_items")
"""Limits of memory and of the spool. `max_queue_size` holds for all front ends together: the status board counts."""
_CORES_FOR_MANY = 4
"""Cores from which on there is a front end for each; with fewer, the engine process needs one of them."""
_MOST_BY_ITSELF = 16
"""Most front ends that `auto` starts; more were not measured."""
_RAN_WELL_S = 10.0
_LONGEST_PAUSE_S = 10.0


def assign_gpus(settings: Settings, environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """The GPU of each engine process, as in CUDA_VISIBLE_DEVICES; empty for one that computes on the CPU."""
    gpus = [] if why_on_cpu(settings) else visible_gpus(environ, dev)
    count = settings.engine_processes or max(1, len(gpus))
    return [gpus[index % len(gpus)] if gpus else "" for index in range(count)]


class Processes(NamedTuple):
    """How many front ends there are, 0 for one process that does everything, and why."""

    front_ends: int
    why: str


class HostFacts(NamedTuple):
    """Resources of the host.

    cores: cores that the server may use; less than one for a container's share of a core.
    gpus: as `assign_gpus` returns them.
    gpu_packages: whether what every engine on a GPU needs is installed.
    system: as `sys.platform`.
    """

    cores: float
    gpus: Sequence[str]
    gpu_packages: bool
    system: str = sys.platform


def facts_of_this_host(settings: Settings) -> HostFacts:
    """Return the facts of this host."""
    return HostFacts(cores_of_container(), assign_gpus(settings, os.environ), find_spec("cuda") is not None)


def choose_processes(settings: Settings, host: HostFacts) -> Processes:
    """Choose the processes of a server, from what is known before anything is loaded.

    Front ends pay where the device computes while the cores have nothing to do: a GPU, or a fake engine that waits. An
    engine on the CPU needs the cores itself (docs/tuning.md has the figures).
    """
    cores = host.cores
    if settings.workers != "auto":
        return Processes(settings.workers, "as the setting workers says")
    if not host.system.startswith("linux"):
        return Processes(0, "front ends need Linux")
    if not (device := _device_beside_cores(settings, host)):
        return Processes(0, "the engine computes on the CPU and needs the cores")
    if cores < 2:
        return Processes(0, f"{device}, but there is one core only")
    if cores < _CORES_FOR_MANY:
        return Processes(1, f"{device}, and there are {cores:.0f} cores: one for HTTP and pictures")
    return Processes(min(int(cores), _MOST_BY_ITSELF), f"{device}: a front end for each of {cores:.0f} cores")


def cores_for_pictures(settings: Settings, host: HostFacts) -> int:
    """Return how many cores the front ends may use for pictures while few requests are in flight; 0: no such rule.

    Each engine process keeps a core, and one that computes on the CPU all of them. A set number of codec threads holds.
    """
    if settings.codec_threads or not _device_beside_cores(settings, host):
        return 0
    return max(0, int(host.cores) - len(host.gpus))


def _device_beside_cores(settings: Settings, host: HostFacts) -> str:
    """Say which device computes while the cores have nothing to do; empty if the cores compute."""
    if any(host.gpus) and host.gpu_packages:
        return "a GPU computes"
    return "the fake engine only waits" if settings.engine == "fake" and settings.fake_batch_ms else ""


def unused_gpu(host: HostFacts) -> str:
    """Say why a GPU that may be used cannot be, and what to do; empty if it can, or if there is none."""
    if not any(host.gpus) or host.gpu_packages:
        return ""
    return "its packages are not installed: `retouch install-gpu` installs them; --device cpu says that this is meant"


def divide_settings(settings: Settings, front_ends: int, cores: int) -> Settings:
    """The settings of one of the front ends: limits of memory are divided among all and rounded up."""
    whole = settings.model_dump()
    share = {name: math.ceil(whole[name] / front_ends) for name in _DIVIDED}
    threads = settings.codec_threads or max(1, math.ceil(cores / front_ends))
    return settings.model_copy(update={**share, "codec_threads": threads})


@dataclass(slots=True)
class Restarts:
    """Pauses before a process is started again: none after it ran well, else doubling."""

    failures: int = 0

    def pause_s(self, lived_s: float) -> float:
        """The pause in seconds after a process that lived that long."""
        self.failures = 0 if lived_s >= _RAN_WELL_S else self.failures + 1
        return 0.0 if self.failures <= 1 else min(_LONGEST_PAUSE_S, 0.25 * 2.0 ** (self.failures - 1))
