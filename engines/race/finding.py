"""Finds the fastest engine for a model on this host: from the stored results of earlier races, or by a race now."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from engines.base import BatchShape
from engines.errors import DeviceLost
from engines.files.record_cache import RecordCache, fingerprint
from engines.manifest import Manifest
from engines.race.timing import Raced, Racer, RaceResult, run_race

RACE_S = 5.0
"""Seconds of a race of `retouch build`."""
_FORMAT = 1
_RUNTIMES = (
    *("openvino", "onnxruntime", "onnxruntime-gpu", "torch", "cuda-bindings"),
    *("tensorrt", "tensorrt-cu13-libs", "tensorrt-cu12-libs", "tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu12-libs"),
)
_log = structlog.get_logger(__name__)


class Setup(NamedTuple):
    """A model and the settings that its engines are opened with."""

    directory: Path
    manifest: Manifest
    max_batch: int
    settings: Mapping[str, object]

    def shapes(self) -> list[BatchShape]:
        """Return the shapes to race on: one sample and a full batch of the smallest tile, one sample of the largest."""
        tiles = sorted(self.manifest.size.tile_sizes(), key=lambda size: size[0] * size[1])
        max_batch = min(self.max_batch, self.manifest.max_batch)
        shapes = BatchShape(1, *tiles[0]), BatchShape(max_batch, *tiles[0]), BatchShape(1, *tiles[-1])
        return list(dict.fromkeys(shapes))

    def facts(self, racers: Sequence[str]) -> dict[str, object]:
        """Return everything that a race's result depends on, except the device."""
        program = self.directory / "program.pt2"
        return {
            "race": _FORMAT,
            "model": self.manifest.key,
            "onnx": self.manifest.onnx_sha256,
            "precision": self.manifest.precision,
            "bf16_levels": self.manifest.bf16_levels,
            "program": program.stat().st_mtime_ns if program.exists() else 0,
            "racers": [*racers],
            "shapes": self.shapes(),
            "versions": {name: found for name in _RUNTIMES if (found := _version(name))},
            **self.settings,
        }


def find_fastest(
    racers: Sequence[Racer],
    setup: Setup,
    device: Callable[[], Mapping[str, object]],
    memory: Path,
    seconds: float,
    notify: Callable[[str], None] = lambda _: None,
) -> Raced | None:
    """Return the result of an earlier race under the same conditions, or race now and remember the result.

    Args:
        racers: the engines in their fixed order.
        setup: the model and its settings.
        device: returns the facts of the device that a result depends on.
        memory: the folder of results.
        seconds: the time of a race; 0 for no race.
        notify: called with each step, as text.

    Returns:
        The result; None if there is none, or the race failed, which is logged: then the fixed order applies.

    Raises:
        DeviceLost: the process must end.
    """
    try:
        names = [racer.name for racer in racers]
        key = fingerprint({**setup.facts(names), **device()})
        results = RecordCache(memory, RaceResult, "race")
        known = results.get(key)
        if known is not None and set(known.order) <= set(names):
            return Raced(known)
        if not seconds:
            return None
        raced = run_race(racers, setup.shapes(), seconds, notify)
    except DeviceLost:
        raise
    except Exception as error:  # the fixed order applies instead
        reason = f"{type(error).__name__}: {error}"
        _log.warning("race failed, the fixed order holds", model=setup.manifest.key, reason=reason)
        return None
    if raced is not None:
        results.put(key, raced.result)
    return raced


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def processor_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, object]:
    """Return the name of the processor and the number of cores that this process may use (its CPU affinity)."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:  # no such file on systems other than Linux
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": name, "cores": cores}
