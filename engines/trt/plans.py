"""Plans of a model: read from the cache, or built and stored there, at the first use or ahead of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from engines.cuda.api import Device
from engines.manifest import Manifest
from engines.plan_cache import PlanCache
from engines.trt.build import BuildOptions, ComputeCapability, build_plan, make_profiles
from engines.trt.library import TensorRt

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlanSource:
    """The plans of one model for one kind of GPU.

    facts: everything that a plan depends on; if any of them changes, another plan is needed.
    """

    library: TensorRt
    directory: Path
    manifest: Manifest
    options: BuildOptions
    cache_dir: Path
    facts: dict[str, Any]

    def cached(self) -> bytes | None:
        """Return the plan from the cache, or None."""
        return PlanCache(self.cache_dir / "plans").get(self.facts)

    def discard(self) -> None:
        """Remove the plan, which the runtime refused, from the cache."""
        PlanCache(self.cache_dir / "plans").discard(self.facts)

    def build(self) -> bytes:
        """Build the plan and store it, and its timing cache for the next build.

        Raises:
            EngineUnavailable: as for `build_plan`.
        """
        timings = PlanCache(self.cache_dir / "timing")
        host = {name: self.facts[name] for name in ("runtime", "gpu", "capability", "driver")}
        _log.info("plan is being built", model=self.manifest.key, runtime=self.library.name)
        built = build_plan(self.library, self.directory, self.manifest, self.options, timings.get(host) or b"")
        PlanCache(self.cache_dir / "plans").put(self.facts, built.data)
        if built.timing_cache:
            timings.put(host, built.timing_cache)
        return built.data


def plan_facts(manifest: Manifest, library: TensorRt, device: Device, options: BuildOptions) -> dict[str, Any]:
    """Return everything that a plan depends on; for TensorRT-RTX the GPU's compute capability, not its name."""
    return {
        "model": manifest.key,
        "onnx": manifest.onnx_sha256,
        "precision": manifest.precision,
        "profiles": make_profiles(manifest, options.max_batch, spanning=library.builds_slowly),
        "runtime": library.name,
        "gpu": "" if library.is_rtx else device.name,
        "capability": list(device.capability),
        "driver": 0 if library.is_rtx else device.driver,
        "version_compatible": options.version_compatible,
        "hardware_compatible": options.hardware_compatible,
        "level": options.level,
    }


def build_ahead(
    library: TensorRt,
    directory: Path,
    manifest: Manifest,
    options: BuildOptions,
    cache_dir: Path,
    target: ComputeCapability,
) -> bool:
    """Build a plan for a GPU of another host into the cache; returns False if it is there already.

    Args:
        library: TensorRT-RTX: other versions build only for this host's GPU.
        directory: the model's version directory.
        manifest: its manifest.
        options: the server's options; `targets` is set here.
        cache_dir: the server's cache folder.
        target: the GPU's compute capability.

    Raises:
        EngineUnavailable: as for `build_plan`.
    """
    device = Device("", (target.major, target.minor), 0, 0)
    facts = plan_facts(manifest, library, device, options)
    for_target = replace(options, targets=(target,))
    source = PlanSource(library, directory, manifest, for_target, cache_dir, facts)
    if source.cached() is not None:
        return False
    source.build()
    return True
