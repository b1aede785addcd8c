"""The checks of `retouch doctor`: whether this host can serve the default models, and which engine runs each model.

It can serve them if the default inpainting and translation models load and compute, and results can be written.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from engines.engine_choice import ChosenEngine, EngineOptions, choose_engine
from engines.errors import RetouchError
from engines.manifest import Manifest
from engines.parity.probes import probe_feeds
from engines.repository.listing import VersionKey, list_versions, read_manifest_of
from retouch.doctor.gpu_checks import GpuSources, gpu_facts
from service.core.gpu_use import why_on_cpu
from service.core.settings import Settings
from service.devices import planes_kernel
from service.imaging.files import png_filters, scanlines
from service.imaging.pasting import kernel as pasting
from service.imaging.texture import patch_match
from service.lifecycle.compiled import HOW_TO_INSTALL
from service.processes.launcher.process_plan import choose_processes, facts_of_this_host

Level = Literal["ok", "warning", "failed"]
ChooseEngine = Callable[[Path, Manifest, EngineOptions], ChosenEngine]

_CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
_MIN_PYTHON = (3, 10)


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class Check(_FrozenModel):
    """One fact about the host; `failed` means that the default models cannot be served."""

    name: str
    level: Level
    detail: str


class ModelCheck(_FrozenModel):
    """The check of one version of a model: its engine, and the reasons why better engines were passed over."""

    model: str
    level: Level
    engine: str | None = None
    precision: str | None = None
    device: str | None = None
    note: str = ""
    passed_over: dict[str, str] = {}
    load_s: float | None = None
    infer_ms: float | None = None
    error: str = ""


class Diagnosis(_FrozenModel):
    """All checks; `ok` if this host can serve the default models."""

    ok: bool
    checks: tuple[Check, ...]
    models: tuple[ModelCheck, ...]


class HostSources(NamedTuple):
    """The sources of the host's facts, replaceable in tests."""

    python: tuple[int, ...] = tuple(sys.version_info[:3])
    cpuinfo: Path = Path("/proc/cpuinfo")
    cores: int | None = os.cpu_count()
    clock: Callable[[], float] = time.perf_counter
    gpu: GpuSources = GpuSources()
    choose: ChooseEngine = choose_engine


def diagnose(settings: Settings, host: HostSources) -> Diagnosis:
    """Check the host and its models; loads each newest version that works and runs one small batch."""
    checks = (
        _check_python(host),
        _check_processor(host),
        _check_library("OpenVINO", "openvino"),
        _check_library("ONNX Runtime", "onnxruntime"),
        _check_compiled_code(),
        *_check_gpu(settings, host.gpu),
        _check_processes(settings),
        _check_folder("engine cache", settings.engine_cache_dir, needed=False),
        _check_folder("results", settings.results_dir, needed=settings.save),
    )
    models = tuple(_check_models(settings, host))
    found = {name for check in models for name in (check.model, check.model.split("/")[0])}
    folder = settings.models_dir.absolute()
    advice = "export one" if folder.is_dir() else "it is not a folder: name another with --models-dir"
    missing = tuple(
        Check(name=f"{task} model", level="failed", detail=f"no {name} in {folder}; {advice}")
        for task, name in (("inpaint", settings.inpaint_model), ("translate", settings.translate_model))
        if name not in found
    )
    levels = {check.level for check in (*checks, *missing)} | {check.level for check in models}
    return Diagnosis(ok="failed" not in levels, checks=(*checks, *missing), models=models)


def _check_python(host: HostSources) -> Check:
    version = ".".join(map(str, host.python))
    if host.python >= _MIN_PYTHON:
        return Check(name="Python", level="ok", detail=f"{version} ({platform.python_implementation()})")
    return Check(name="Python", level="failed", detail=f"{version}; 3.10 or newer is needed")


def _check_processor(host: HostSources) -> Check:
    try:
        lines = host.cpuinfo.read_text().splitlines()
    except OSError:  # no such file on systems other than Linux
        return Check(name="CPU", level="ok", detail=f"{platform.machine()}, {host.cores} cores")
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    present = ", ".join(flag for flag in _CPU_FLAGS if flag in flags) or "none of " + ", ".join(_CPU_FLAGS)
    return Check(
        name="CPU", level="ok", detail=f"{fields.get('model name', platform.machine())}, {host.cores} cores, {present}"
    )


def _check_library(title: str, module: str) -> Check:
    if importlib.util.find_spec(module) is None:
        return Check(name=title, level="warning", detail=f"not installed; pip install {module}")
    return Check(name=title, level="ok", detail=importlib.metadata.version(module))


def _check_compiled_code() -> Check:
    missing = [
        without
        for kernel, without in (
            (patch_match.installed_kernel(), "`texture=copied` is refused"),
            (pasting.installed_kernel(), "fills are pasted more slowly"),
            (planes_kernel.installed_kernel(), "a CPU's tiles are converted more slowly"),
            (png_filters.installed_kernel(), "PNGs are read more slowly"),
            (scanlines.installed_kernel(), "PNGs of photographs are written more slowly"),
        )
        if kernel is None
    ]
    if missing:
        detail = f"missing, so {', '.join(missing)}; {HOW_TO_INSTALL}"
        return Check(name="compiled code", level="warning", detail=detail)
    detail = "it copies texture, pastes fills, converts tiles for a CPU, and reads and writes PNGs"
    return Check(name="compiled code", level="ok", detail=detail)


def _check_gpu(settings: Settings, host: GpuSources) -> list[Check]:
    if why := why_on_cpu(settings):
        return [Check(name="GPU", level="ok", detail=f"not looked for: {why}")]
    return [
        Check(name=fact.name, level="ok" if fact.is_fine else "warning", detail=fact.detail) for fact in gpu_facts(host)
    ]


def _check_processes(settings: Settings) -> Check:
    """Describe the processes that `retouch serve` would start."""
    host = facts_of_this_host(settings)
    chosen = choose_processes(settings, host)
    engines = ", ".join(f"GPU {gpu}" if gpu else "CPU" for gpu in host.gpus)
    front_ends = "front end" if chosen.front_ends == 1 else "front ends"
    many = f"{chosen.front_ends} {front_ends} and {len(host.gpus)} that compute ({engines})"
    shown = many if chosen.front_ends else "one"
    return Check(name="processes", level="ok", detail=f"{shown}: {chosen.why}")


def _check_folder(title: str, path: Path, *, needed: bool) -> Check:
    """Check that a file can be written in the folder, or in its nearest parent if it does not exist yet."""
    nearest = next((place for place in (path, *path.absolute().parents) if place.exists()), path)
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        level: Level = "failed" if needed else "warning"
        return Check(name=title, level=level, detail=f"{path} cannot be written ({error.strerror})")
    state = "writable" if nearest == path else "will be made"
    return Check(name=title, level="ok", detail=f"{path} ({state})")


def _check_models(settings: Settings, host: HostSources) -> Iterator[ModelCheck]:
    """Check each model's versions from the newest down to one that works, and the versions that the settings name."""
    found = list_versions(settings.models_dir)
    options = EngineOptions(
        choice=settings.engine,
        threads=settings.engine_threads,
        cache_dir=settings.engine_cache_dir,
        fake_batch_s=settings.fake_batch_ms / 1e3,
        max_batch=settings.max_batch_size,
        trt_level=settings.trt_level,
        int8=settings.allow_int8,
        device=settings.device,
    )
    defaults = {settings.inpaint_model, settings.translate_model}
    for name in sorted({key.name for key in found}):
        served = False
        checks = []
        for key in sorted((key for key in found if key.name == name), reverse=True):
            if not served or str(key) in defaults:
                check = _check_version(key, found[key].directory, options, host)
                served = served or check.level == "ok"
                checks.append(check)
        for check in checks:
            is_needed = check.model in defaults or (name in defaults and not served)
            yield check if check.level == "ok" or is_needed else check.model_copy(update={"level": "warning"})


def _check_version(key: VersionKey, directory: Path, options: EngineOptions, host: HostSources) -> ModelCheck:
    """Load one version and run a batch; the check is `failed` if it cannot serve."""
    clock = host.clock
    started = clock()
    try:
        manifest = read_manifest_of(key, directory)
        engine, passed_over = host.choose(directory, manifest, options)
        try:
            loaded = clock()
            _, feed = next(probe_feeds(manifest))
            engine.infer(feed)
            warm = clock()
            output = engine.infer(feed)["output"]
            ended = clock()
            finite = bool(np.isfinite(output).all())  # on a GPU `close` frees the memory that the output lies in
        finally:
            engine.close()
    except RetouchError as error:
        return ModelCheck(model=str(key), level="failed", error=str(error))
    return ModelCheck(
        model=str(key),
        level="ok" if finite else "failed",
        engine=engine.name,
        precision=engine.precision,
        device=engine.device,
        note=engine.note,
        passed_over=passed_over,
        load_s=round(loaded - started, 3),
        infer_ms=round((ended - warm) * 1e3, 2),
        error="" if finite else "the output has NaN or inf",
    )
