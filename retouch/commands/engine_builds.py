"""Builds the engines of a model ahead of time, for `retouch build`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engines.engine_choice import ChosenEngine, EngineOptions, choose_engine
from engines.errors import DeviceLost, ModelNotFound, RetouchError
from engines.manifest import Manifest
from engines.model_files import verify_onnx
from engines.race.finding import RACE_S
from engines.repository.listing import list_versions, read_manifest_of
from engines.trt.build import BuildOptions, ComputeCapability
from engines.trt.library import load_tensorrt
from engines.trt.plans import build_ahead
from service.batching.local_backend import warm_up_shapes
from service.core.settings import Settings


class BuildOutcome(NamedTuple):
    """The outcome of one build: its target, and the engine or the error."""

    what: str
    outcome: str
    failed: bool = False


def newest_models(root: Path, names: Sequence[str]) -> list[tuple[Path, Manifest]]:
    """Return directory and manifest of the newest version of each model, or of the named ones.

    Raises:
        ModelNotFound: a named model does not exist, or there are no models at all.
        ManifestInvalid: a manifest cannot be read.
    """
    found = list_versions(root)
    newest = {key.name: key for key in sorted(found)}
    if missing := sorted(set(names) - set(newest)):
        raise ModelNotFound(f"no {', '.join(missing)} in {root}; there are {', '.join(newest) or 'none'}")
    if not newest:
        raise ModelNotFound(f"no models in {root}; export one, or name their repository with --models-dir")
    keys = [newest[name] for name in (names or newest)]
    return [(found[key].directory, read_manifest_of(key, found[key].directory)) for key in keys]


def build_model(
    directory: Path,
    manifest: Manifest,
    settings: Settings,
    capabilities: Sequence[str],
    choose: Callable[..., ChosenEngine] = choose_engine,
) -> list[BuildOutcome]:
    """Build the engine that the settings choose for this host, or TensorRT-RTX plans for given capabilities.

    Raises:
        DeviceLost: the process must end, because every later build in it would fail; the next process passes this
            engine over.
    """
    if capabilities:
        return [_build_plan_for(directory, manifest, settings, capability) for capability in capabilities]
    return [_build_for_this_host(directory, manifest, settings, choose)]


def _build_plan_for(directory: Path, manifest: Manifest, settings: Settings, capability: str) -> BuildOutcome:
    what = f"for capability {capability}"
    try:
        verify_onnx(directory, manifest)
        target, library = ComputeCapability.parse(capability), load_tensorrt()
        options = BuildOptions(max_batch=settings.max_batch_size, level=settings.trt_level)
        built = build_ahead(library, directory, manifest, options, settings.engine_cache_dir, target)
    except RetouchError as error:
        return BuildOutcome(what, str(error), failed=True)
    return BuildOutcome(what, f"built with {library.name}" if built else "is in the cache already")


def _build_for_this_host(
    directory: Path, manifest: Manifest, settings: Settings, choose: Callable[..., ChosenEngine]
) -> BuildOutcome:
    options = EngineOptions(
        settings.engine,
        settings.engine_threads,
        settings.engine_cache_dir,
        max_batch=settings.max_batch_size,
        trt_level=settings.trt_level,
        int8=settings.allow_int8,
        device=settings.device,
        race_s=RACE_S,
    )
    try:
        # the warm-up compiles what a server compiles when it starts
        opened = choose(directory, manifest, options, warm_up_shapes=partial(warm_up_shapes, settings)).engine
        opened.close()
    except DeviceLost:
        raise
    except RetouchError as error:
        return BuildOutcome(settings.engine, str(error), failed=True)
    why = f" ({opened.note})" if opened.note else ""
    return BuildOutcome(opened.name, f"{opened.precision} on {opened.device}{why}")
