"""Decisions of the launcher: which processes there are, what each gets, and when one is started again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.cuda.gpu_detection import visible_gpus
from service.core.settings import Settings

_ON_CPUS = frozenset({"openvino", "onnxrt", "fake"})
_DIVIDED = ("max_memory_mb", "spool_max_items")
"""Limits of memory and of the spool. `max_queue_size` holds for all front ends together: the status board counts."""
_RAN_WELL_S = 10.0
_LONGEST_PAUSE_S = 10.0


def assign_gpus(settings: Settings, environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """The GPU of each engine process, as in CUDA_VISIBLE_DEVICES; empty for one that computes on the CPU."""
    gpus = [] if settings.engine in _ON_CPUS else visible_gpus(environ, dev)
    count = settings.engine_processes or max(1, len(gpus))
    return [gpus[index % len(gpus)] if gpus else "" for index in range(count)]


def divide_settings(settings: Settings, cores: int) -> Settings:
    """The settings of one front end: limits of memory are divided among all and rounded up."""
    whole = settings.model_dump()
    share = {name: math.ceil(whole[name] / settings.workers) for name in _DIVIDED}
    threads = settings.codec_threads or max(1, math.ceil(cores / settings.workers))
    return settings.model_copy(update={**share, "codec_threads": threads})


@dataclass(slots=True)
class Restarts:
    """Pauses before a process is started again: none after it ran well, else doubling."""

    failures: int = 0

    def pause_s(self, lived_s: float) -> float:
        """The pause in seconds after a process that lived that long."""
        self.failures = 0 if lived_s >= _RAN_WELL_S else self.failures + 1
        return 0.0 if self.failures <= 1 else min(_LONGEST_PAUSE_S, 0.25 * 2.0 ** (self.failures - 1))
