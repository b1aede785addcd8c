"""Builds a TensorRT plan from model.onnx; TensorRT needs the target GPU for this, TensorRT-RTX needs no GPU.

Each layer computes in the graph's precision (export decides on FP16). Strongly typed networks follow the graph by
themselves; for TensorRT 8.6, which has none, the type of each layer is set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engines.base import BatchShape
from engines.errors import EngineUnavailable
from engines.manifest import MAX_SAMPLES, ONNX_FILE, Manifest
from engines.tensors import tensor_shape
from engines.trt.build_progress import watch_build
from engines.trt.layer_types import pin_types
from engines.trt.library import TensorRt


@dataclass(frozen=True, slots=True)
class ComputeCapability:
    """The compute capability of an NVIDIA GPU, as in `8.9`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Parse `8.9`, `12.0` or `SM89`.

        Raises:
            EngineUnavailable: the text has another form.
        """
        if match := re.fullmatch(r"(?:(\d+)\.(\d)|sm_?(\d+)(\d))", text.strip().lower()):
            major, minor = (group for group in match.groups() if group is not None)
            return cls(int(major), int(minor))
        raise EngineUnavailable(f"{text!r} is not a compute capability; write it like 8.9")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The options of a build.

    max_batch: the largest batch that the service sends; the model's own limit applies too.
    targets: compute capabilities to build for; empty for this host's GPU. Only TensorRT-RTX builds for other GPUs.
    version_compatible: the plan also runs on later TensorRT versions (slower).
    hardware_compatible: the plan also runs on other GPUs, Ampere and later (slower).
    level: builder optimisation level, 0 (fastest build) to 5, in versions that have it.
    notify: called with the progress of the build, as text; versions before 8.7 report none.
    """

    max_batch: int = 8
    targets: tuple[ComputeCapability, ...] = ()
    version_compatible: bool = False
    hardware_compatible: bool = False
    level: int = 3
    notify: Callable[[str], None] = lambda _: None


class Profile(NamedTuple):
    """A TensorRT optimisation profile: the smallest and the largest batch; kernels are tuned for the largest."""

    smallest: BatchShape
    largest: BatchShape

    def holds(self, shape: BatchShape) -> bool:
        """Return whether a batch of that shape runs on this profile."""
        return all(low <= size <= high for low, size, high in zip(self.smallest, shape, self.largest, strict=True))


class Plan(NamedTuple):
    """A serialised engine, and the timing cache that speeds up the next build on the same GPU."""

    data: bytes
    timing_cache: bytes


def make_profiles(manifest: Manifest, max_batch: int, *, spanning: bool = False) -> list[Profile]:
    """Return two profiles for each tile size, for one row and for batches: both are frequent, with different kernels.

    A model with several samples per row has more profiles, with fewer rows for more samples: a single profile for the
    most rows with the most samples would take eight times the memory.

    Args:
        manifest: the model's tile sizes and largest batch.
        max_batch: the service's largest batch.
        spanning: make two profiles that span all tile sizes, tuned for the largest.
    """
    max_rows = min(max_batch, manifest.max_batch)
    samples = [(1, 1), (2, 4), (5, MAX_SAMPLES)] if manifest.samples_together else [(1, 1)]
    rows = [(1, 1, *few) for few in samples]
    rows += [(2, max_rows // few[0], *few) for few in samples if max_rows // few[0] > 1]
    tiles = list(manifest.size.tile_sizes())
    sizes = [(size, size) for size in tiles]
    if spanning:
        heights, widths = zip(*tiles, strict=True)
        sizes = [((min(heights), min(widths)), (max(heights), max(widths)))]
    return [
        Profile(BatchShape(first, *smallest, fewest), BatchShape(last, *largest, several))
        for smallest, largest in sizes
        for first, last, fewest, several in rows
    ]


def build_plan(
    library: TensorRt, directory: Path, manifest: Manifest, options: BuildOptions, timing_cache: bytes = b""
) -> Plan:
    """Build the plan of a model; takes seconds (RTX) to minutes.

    Args:
        library: the TensorRT that will also run the plan, because a plan belongs to one version.
        directory: the model's version directory.
        manifest: its manifest.
        options: the options of the build.
        timing_cache: the timing cache of an earlier build on the same GPU; empty for none.

    Raises:
        EngineUnavailable: the graph has an operator that cannot be parsed (it is named), this library does not
            support the options, or the build failed.
    """
    if manifest.precision == "int8" and not library.is_strongly_typed:
        raise EngineUnavailable(f"{library.name} builds no INT8 graph; TensorRT 10 and later do")
    try:
        builder = library.module.Builder(library.logger)
    except TypeError as error:  # the bindings raise TypeError where the library finds no GPU
        raise EngineUnavailable(f"{library.name} cannot build here{_error_suffix(library)}") from error
    network = parse_network(library, builder, directory / ONNX_FILE, manifest)
    config = _configure(library, builder, options)
    cache = _set_timing_cache(library, config, timing_cache)
    for profile in make_profiles(manifest, options.max_batch, spanning=library.builds_slowly):
        config.add_optimization_profile(_make_profile(builder, manifest, profile))
    if not library.is_strongly_typed:
        pin_types(library.module, network)
    options.notify(f"building its plan with {library.name}")
    monitor = watch_build(library, config, options.notify)  # must live until the plan is built
    plan = builder.build_serialized_network(network, config)
    del monitor
    if plan is None:
        raise EngineUnavailable(f"{library.name} cannot build {manifest.key}{_error_suffix(library)}")
    return Plan(bytes(plan), bytes(cache.serialize()) if cache is not None else b"")


def parse_network(library: TensorRt, builder: Any, path: Path, manifest: Manifest) -> Any:
    """Parse a graph into a TensorRT network.

    Raises:
        EngineUnavailable: an operator cannot be parsed; the message names it and its node.
    """
    network = builder.create_network(library.network_flags())
    parser = library.module.OnnxParser(network, library.logger)
    if hasattr(parser, "set_flag"):  # without this flag (8.6.0) instance norm is a plugin that needs cuDNN
        parser.set_flag(library.module.OnnxParserFlag.NATIVE_INSTANCENORM)
    library.take_errors()
    if not parser.parse_from_file(str(path)):
        reasons = [_parser_error(parser.get_error(index)) for index in range(parser.num_errors)]
        logged = " ".join(library.take_errors())
        if named := re.search(r"node number \d+ \[(\w+)", logged):  # 8.6 names the operator in its log only
            reasons.insert(0, f"operator {named[1]}")
        raise EngineUnavailable(f"{library.name} cannot parse {manifest.key}: {'; '.join(reasons) or logged}")
    return network


def _configure(library: TensorRt, builder: Any, options: BuildOptions) -> Any:
    trt = library.module
    config = builder.create_builder_config()
    if hasattr(config, "builder_optimization_level"):
        config.builder_optimization_level = options.level
    flags = []
    if not library.is_strongly_typed:
        flags += ["FP16", "OBEY_PRECISION_CONSTRAINTS"]
        # no cuDNN and cuBLAS tactics, so that neither library has to be on the host
        wanted = (trt.TacticSource.EDGE_MASK_CONVOLUTIONS, trt.TacticSource.JIT_CONVOLUTIONS)
        config.set_tactic_sources(sum(1 << int(source) for source in wanted))
        # lets several contexts, one for each shape, share a profile; later versions always do
        config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)
    if options.version_compatible:
        flags.append("VERSION_COMPATIBLE")
    for name in flags:
        config.set_flag(getattr(trt.BuilderFlag, name))
    if options.hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if options.targets:
        _set_targets(library, config, options.targets)
    return config


def _set_targets(library: TensorRt, config: Any, targets: tuple[ComputeCapability, ...]) -> None:
    if not hasattr(config, "set_compute_capability"):
        raise EngineUnavailable(f"{library.name} builds for this host's GPU only; leave the capability out")
    known = library.module.ComputeCapability
    config.num_compute_capabilities = len(targets)
    for index, target in enumerate(targets):
        name = f"SM{target.major}{target.minor}"
        if not hasattr(known, name):
            offered = sorted(each for each in dir(known) if each.startswith("SM"))
            raise EngineUnavailable(f"{library.name} does not know GPUs of {name}, only {', '.join(offered)}")
        config.set_compute_capability(getattr(known, name), index)


def _set_timing_cache(library: TensorRt, config: Any, timing_cache: bytes) -> Any:
    if library.is_rtx:  # RTX compiles on the target, so there are no timings
        return None
    cache = config.create_timing_cache(timing_cache)
    if cache is None or not config.set_timing_cache(cache, False):  # the cache is damaged, or of another GPU or version
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, False)
    return cache


def _make_profile(builder: Any, manifest: Manifest, profile: Profile) -> Any:
    optimisation = builder.create_optimization_profile()
    for spec in manifest.inputs:
        smallest, largest = (tensor_shape(spec, shape) for shape in profile)
        optimisation.set_shape(spec.name, smallest, largest, largest)
    return optimisation


def _parser_error(error: Any) -> str:
    if hasattr(error, "node_operator") and error.node_operator():
        return f"operator {error.node_operator()} (node {error.node_name() or error.node()}): {error.desc()}"
    # for a known operator in an unsupported form, only the failing import function names it
    named = re.fullmatch(r"import([A-Z]\w*)", error.func()) if hasattr(error, "func") else None
    return f"operator {named[1]}: {error.desc()}" if named else str(error.desc())


def _error_suffix(library: TensorRt) -> str:
    errors = library.take_errors()
    return f": {'; '.join(errors)[:500]}" if errors else ""
