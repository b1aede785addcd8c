"""Chooses the engine that runs a model: the table of runtimes, best first, and the reasons for the choice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from engines.base import BatchShape, Engine, WarmUpShapes, warm_up_engine
from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.cuda.api import open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.cuda.inductor import InductorEngine
from engines.cuda.onnxrt_cuda import OnnxRuntimeCudaEngine, import_onnxruntime
from engines.engine_names import DeviceChoice, EngineChoice
from engines.errors import DeviceLost, EngineError, EngineOutOfMemory, EngineUnavailable, ModelCorrupt, ParityTooLow
from engines.fake import FakeEngine, FaultFile, no_fault
from engines.files.regular import irregular_entries, open_regular
from engines.manifest import ONNX_FILE, Manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from engines.trt.library import load_tensorrt

_log = structlog.get_logger(__name__)
_MAX_ONNX_BYTES = 2**31
"""The largest model.onnx in bytes; protobuf reads no larger one."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The operator's options for engines.

    choice: `auto` selects the first runtime of the table that works here.
    threads: CPU threads of the engine; 0 means all cores.
    cache_dir: folder for compiled engines and precision decisions; made when needed.
    fake_batch_s: seconds that the fake engine takes for a batch.
    fake_faults: the file from which the fake engine reads faults to inject; None for none.
    max_batch: the largest batch that the service sends; GPU engines are built for it.
    gpu: the number of the NVIDIA GPU, as in nvidia-smi.
    trt_level: TensorRT's builder optimisation level, 0 to 5.
    int8: whether models of precision int8 may be opened.
    device: `cpu` leaves a GPU alone.
    notify: told what is done next, in words; building for a GPU takes minutes.
    """

    choice: EngineChoice = "auto"
    threads: int = 0
    cache_dir: Path = Path("cache")
    fake_batch_s: float = 0.0
    fake_faults: Path | None = None
    max_batch: int = 8
    gpu: int = 0
    trt_level: int = 3
    int8: bool = True
    device: DeviceChoice = "auto"
    notify: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A runtime that may be able to run a model; `open` raises EngineError or ParityTooLow where it cannot."""

    name: EngineChoice
    open: Callable[[Path, Manifest, EngineOptions], Engine]
    reads_onnx: bool = True
    automatic: bool = True
    needs_gpu: bool = False


class ChosenEngine(NamedTuple):
    """The engine that was chosen, and the reason why each better one was passed over."""

    engine: Engine
    passed_over: dict[str, str]


def _open_trt(directory: Path, manifest: Manifest, options: EngineOptions) -> Engine:
    return TrtEngine(
        directory,
        manifest,
        cuda=open_cuda(options.gpu),
        library=load_tensorrt(),
        cache_dir=options.cache_dir,
        options=BuildOptions(max_batch=options.max_batch, level=options.trt_level, notify=options.notify),
    )


def _open_inductor(directory: Path, manifest: Manifest, options: EngineOptions) -> Engine:
    return InductorEngine(
        directory, manifest, device=f"cuda:{options.gpu}", cache_dir=options.cache_dir, max_batch=options.max_batch
    )


def _open_onnxrt_cuda(directory: Path, manifest: Manifest, options: EngineOptions) -> Engine:
    import_onnxruntime()  # the library that is missing most often is checked first
    return OnnxRuntimeCudaEngine(
        directory, manifest, cuda=open_cuda(options.gpu), cache_dir=options.cache_dir, max_batch=options.max_batch
    )


def _open_openvino(directory: Path, manifest: Manifest, options: EngineOptions) -> Engine:
    return OpenVinoEngine(directory, manifest, threads=options.threads, cache_dir=options.cache_dir)


def _open_onnxrt(directory: Path, manifest: Manifest, options: EngineOptions) -> Engine:
    return OnnxRuntimeEngine(directory, manifest, threads=options.threads)


def _open_fake(_directory: Path, manifest: Manifest, options: EngineOptions) -> Engine:
    fault = FaultFile(options.fake_faults) if options.fake_faults else no_fault
    return FakeEngine(manifest, batch_s=options.fake_batch_s, fault=fault)


CANDIDATES = (  # best first
    Candidate("trt", _open_trt, needs_gpu=True),
    Candidate("inductor", _open_inductor, needs_gpu=True),
    Candidate("onnxrt-cuda", _open_onnxrt_cuda, needs_gpu=True),
    Candidate("openvino", _open_openvino),
    Candidate("onnxrt", _open_onnxrt),
    Candidate("fake", _open_fake, reads_onnx=False, automatic=False),
)


def candidates_for(choice: EngineChoice) -> tuple[Candidate, ...]:
    """Return the runtimes to try for a choice, best first."""
    return tuple(c for c in CANDIDATES if (c.automatic if choice == "auto" else c.name == choice))


def open_engine(
    directory: Path, manifest: Manifest, options: EngineOptions, warm_up_shapes: WarmUpShapes = lambda _: ()
) -> Engine:
    """Open the best engine that works here, as `choose_engine` does."""
    return choose_engine(directory, manifest, options, warm_up_shapes=warm_up_shapes).engine


def choose_engine(
    directory: Path,
    manifest: Manifest,
    options: EngineOptions,
    among: tuple[Candidate, ...] | None = None,
    gpu_is_here: Callable[[], bool] = has_nvidia_gpu,
    warm_up_shapes: WarmUpShapes = lambda _: (),
) -> ChosenEngine:
    """Open and warm up the first runtime that works, and record why the better ones did not.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        options: the operator's options.
        among: the runtimes to try; all of the table by default.
        gpu_is_here: whether there is a GPU; without one no GPU library is imported.
        warm_up_shapes: the shapes to run once; an engine with too little memory for them is passed over too.

    Raises:
        ModelCorrupt: model.onnx is missing or is not the file that the manifest was written for, or the directory
            holds something other than regular files.
        EngineUnavailable: no runtime works, or the model is INT8 and that is forbidden; the message has every reason.
        EngineOutOfMemory: no runtime works, one of them only for lack of memory: it may work later.
        DeviceLost: the process must end; another engine would fail too, or silently run on the CPU.
    """
    to_try = candidates_for(options.choice) if among is None else among
    if manifest.precision == "int8" and not options.int8:
        raise EngineUnavailable(
            f"{manifest.key} is INT8, which --no-allow-int8 forbids; leave that out, or export it with --precision fp16"
        )
    _refuse_irregular_files(directory, manifest)
    if any(candidate.reads_onnx for candidate in to_try):
        verify_onnx(directory, manifest)
    passed_over: dict[str, str] = {}
    failure: type[EngineError] = EngineUnavailable
    for candidate in to_try:
        if candidate.needs_gpu and (why := _why_no_gpu(options, gpu_is_here)):
            passed_over[candidate.name] = why
            continue
        try:
            options.notify(f"opening {candidate.name}")
            shapes = partial(_told_shapes, warm_up_shapes, options.notify)
            engine = warm_up_engine(candidate.open(directory, manifest, options), shapes)
        except DeviceLost:
            raise
        except (EngineError, ParityTooLow) as error:
            passed_over[candidate.name] = str(error)
            failure = EngineOutOfMemory if isinstance(error, EngineOutOfMemory) else failure
            continue
        except Exception as error:  # an unexpected error of one runtime must not keep the next from being tried
            _log.exception("engine failed to open", model=manifest.key, engine=candidate.name)
            passed_over[candidate.name] = f"{type(error).__name__}: {error}"
            continue
        _log.info(
            "engine chosen",
            model=manifest.key,
            engine=engine.name,
            precision=engine.precision,
            device=engine.device,
            passed_over=passed_over,
        )
        return ChosenEngine(engine, passed_over)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in passed_over.items())
    raise failure(f"no engine can run {manifest.key} here ({reasons or 'none was tried'})")


def _told_shapes(shapes: WarmUpShapes, notify: Callable[[str], None], engine: Engine) -> Iterator[BatchShape]:
    """Yield the shapes of the warm-up, each of which may be compiled first, and say before each how many there are."""
    every = list(shapes(engine))
    for number, shape in enumerate(every, 1):
        notify(f"warming up {engine.name}, shape {number} of {len(every)}")
        yield shape


def _why_no_gpu(options: EngineOptions, gpu_is_here: Callable[[], bool]) -> str:
    """Return why no GPU may be used; empty if one may."""
    if options.device == "cpu":
        return "--device cpu leaves the GPU alone"
    return "" if gpu_is_here() else "no NVIDIA GPU here"


def verify_onnx(directory: Path, manifest: Manifest) -> None:
    """Check that model.onnx has the SHA-256 digest of the manifest.

    Raises:
        ModelCorrupt: it is missing, unreadable or has another digest.
    """
    path = directory / ONNX_FILE
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while file.tell() <= _MAX_ONNX_BYTES and (block := file.read(1 << 20)):
                digest.update(block)
    except OSError as error:
        raise ModelCorrupt(f"{path}: cannot be read ({error.strerror}); export {manifest.key} again") from error
    if digest.hexdigest() != manifest.onnx_sha256:
        raise ModelCorrupt(
            f"{path}: sha256 is {digest.hexdigest()[:12]}…, the manifest says {manifest.onnx_sha256[:12]}…; "
            f"copy or export {manifest.key} again"
        )


def _refuse_irregular_files(directory: Path, manifest: Manifest) -> None:
    """Raise ModelCorrupt if the directory holds FIFOs, devices or sockets, on which a runtime could block for ever."""
    try:
        odd = irregular_entries(directory)
    except OSError as error:
        raise ModelCorrupt(f"{directory}: cannot be read ({error.strerror}); export {manifest.key} again") from error
    if odd:
        raise ModelCorrupt(
            f"{directory}: {', '.join(odd)}: no regular file; remove it, or copy or export {manifest.key} again"
        )
