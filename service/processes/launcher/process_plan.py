"""Decisions of the launcher: which processes to start, their shares of GPUs, cores and limits, and restart pauses."""

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

_DIVIDED_SETTINGS = ("max_memory_mb", "spool_max_items")
"""Settings that are divided among the front ends: limits of memory and of the spool. `max_queue_size` is not divided,
because front ends count their requests together on the status board."""
_MIN_CORES_FOR_SEVERAL = 4
"""Least number of cores for one front end per core; with fewer cores, the engine process needs one of them."""
_MAX_AUTOMATIC_FRONT_ENDS = 16
"""Largest number of front ends that `auto` starts; more were not measured."""
_STABLE_AFTER_S = 10.0
_MAX_PAUSE_S = 10.0


def assign_gpus(settings: Settings, environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """Return the GPU of each engine process, as in CUDA_VISIBLE_DEVICES; "" for a process that computes on the CPU."""
    gpus = [] if why_on_cpu(settings) else visible_gpus(environ, dev)
    count = settings.engine_processes or max(1, len(gpus))
    return [gpus[index % len(gpus)] if gpus else "" for index in range(count)]


class Processes(NamedTuple):
    """The number of front ends, 0 for a single process that does everything, and the reason for it."""

    front_ends: int
    why: str


class HostFacts(NamedTuple):
    """Resources of the host.

    cores: number of cores that the server may use; may be a fraction, by a container's quota.
    gpus: the GPU of each engine process, from `assign_gpus`.
    gpu_packages: whether the packages that every engine on a GPU needs are installed.
    system: the platform, from `sys.platform`.
    """

    cores: float
    gpus: Sequence[str]
    gpu_packages: bool
    system: str = sys.platform


def facts_of_this_host(settings: Settings) -> HostFacts:
    """Return the facts of this host."""
    return HostFacts(cores_of_container(), assign_gpus(settings, os.environ), find_spec("cuda") is not None)


def choose_processes(settings: Settings, host: HostFacts) -> Processes:
    """Choose the processes of a server from its settings and its host, before anything is loaded.

    Separate front ends are worthwhile if the cores would otherwise be idle while the device computes: with a GPU, or a
    fake engine that only waits. An engine on the CPU needs the cores itself (measurements: docs/tuning.md).
    """
    cores = host.cores
    if settings.workers != "auto":
        return Processes(settings.workers, "set by the setting workers")
    if not host.system.startswith("linux"):
        return Processes(0, "front ends need Linux")
    if not (device := _device_beside_cores(settings, host)):
        return Processes(0, "the engine computes on the CPU and needs the cores")
    if cores < 2:
        return Processes(0, f"{device}, but there is only one core")
    if cores < _MIN_CORES_FOR_SEVERAL:
        return Processes(1, f"{device}, and there are {cores:.0f} cores: one for HTTP and pictures")
    return Processes(min(int(cores), _MAX_AUTOMATIC_FRONT_ENDS), f"{device}: a front end for each of {cores:.0f} cores")


def cores_for_pictures(settings: Settings, host: HostFacts) -> int:
    """Return how many cores all front ends may use for pictures while few requests are in flight; 0: rule not used.

    Each engine process keeps a core. The rule is not used if engines compute on the CPU, or if `codec_threads` is set.
    """
    if settings.codec_threads or not _device_beside_cores(settings, host):
        return 0
    return max(0, int(host.cores) - len(host.gpus))


def _device_beside_cores(settings: Settings, host: HostFacts) -> str:
    """Return which device computes while the cores are idle, for messages; empty if the cores compute."""
    if any(host.gpus) and host.gpu_packages:
        return "a GPU computes"
    return "the fake engine only waits" if settings.engine == "fake" and settings.fake_batch_ms else ""


def unused_gpu(host: HostFacts) -> str:
    """Return why an allowed GPU cannot be used, and what to do; empty if it can be used, or if there is none."""
    if not any(host.gpus) or host.gpu_packages:
        return ""
    return "its packages are not installed: `retouch install-gpu` installs them; --device cpu avoids this warning"


def divide_settings(settings: Settings, front_ends: int, cores: int) -> Settings:
    """Return the settings of one front end: its share of the divided limits and of the codec threads, rounded up."""
    whole = settings.model_dump()
    share = {name: math.ceil(whole[name] / front_ends) for name in _DIVIDED_SETTINGS}
    threads = settings.codec_threads or max(1, math.ceil(cores / front_ends))
    return settings.model_copy(update={**share, "codec_threads": threads})


@dataclass(slots=True)
class Restarts:
    """Pauses before a process is started again: none after a run of 10 s or more, or one failure; then doubling."""

    failures: int = 0

    def pause_s(self, lived_s: float) -> float:
        """Return the pause in seconds before the next start, after a process that ran for `lived_s` seconds."""
        self.failures = 0 if lived_s >= _STABLE_AFTER_S else self.failures + 1
        return 0.0 if self.failures <= 1 else min(_MAX_PAUSE_S, 0.25 * 2.0 ** (self.failures - 1))
