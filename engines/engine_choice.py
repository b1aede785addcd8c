"""Chooses the engine that runs a model: the table of runtimes, best first, and the reasons for the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from engines.base import BatchShape, Engine, WarmUpShapes, warm_up_engine
from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.cuda.api import Cuda, open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.cuda.inductor import InductorEngine
from engines.cuda.lost_gpu import GpuLossMemory, GpuUse, Load, gpu_facts
from engines.cuda.onnxrt_cuda import OnnxRuntimeCudaEngine, import_onnxruntime
from engines.engine_names import DeviceChoice, EngineChoice
from engines.errors import DeviceLost, EngineError, EngineOutOfMemory, EngineUnavailable, LoadStopped, ParityTooLow
from engines.fake import FakeEngine, FaultFile, no_fault
from engines.manifest import Manifest
from engines.model_files import check_model
from engines.onnxrt import OnnxRuntimeEngine
from engines.race.finding import Setup, find_fastest, processor_facts
from engines.race.timing import NO_RACE, Raced, Racer
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from engines.trt.library import load_tensorrt

_log = structlog.get_logger(__name__)


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
    device: `cpu` does not use a GPU.
    notify: called with each step as it begins, as text; building for a GPU takes minutes.
    race_s: seconds to time the engines of a device side by side, if `choice` is `auto` and no earlier race is stored.
        0 for no race, and so the fixed order: for servers, which must not race while they serve.
    gpu_use: the models of this process on the GPU; if it is lost while there are several, no engine is blamed.
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
    race_s: float = 0.0
    gpu_use: GpuUse = field(default_factory=GpuUse, compare=False)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A runtime that may be able to run a model; `open` raises EngineError or ParityTooLow where it cannot.

    reads_onnx: whether it reads model.onnx.
    automatic: whether `auto` may choose it.
    needs_gpu: whether it runs on an NVIDIA GPU.
    keeps: whether it stores something in the engine cache for the next start.
    """

    name: EngineChoice
    open: Callable[[Path, Manifest, EngineOptions], Engine]
    reads_onnx: bool = True
    automatic: bool = True
    needs_gpu: bool = False
    keeps: bool = True


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
    Candidate("onnxrt", _open_onnxrt, keeps=False),
    Candidate("fake", _open_fake, reads_onnx=False, automatic=False, keeps=False),
)


def candidates_for(choice: EngineChoice) -> tuple[Candidate, ...]:
    """Return the runtimes to try for a choice, best first."""
    return tuple(c for c in CANDIDATES if (c.automatic if choice == "auto" else c.name == choice))


def open_engine(
    directory: Path, manifest: Manifest, options: EngineOptions, warm_up_shapes: WarmUpShapes = lambda _: ()
) -> Engine:
    """Open the best engine that works here, as `choose_engine` does."""
    return choose_engine(directory, manifest, options, warm_up_shapes=warm_up_shapes).engine


def choose_engine(  # noqa: PLR0913 -- two are for tests
    directory: Path,
    manifest: Manifest,
    options: EngineOptions,
    among: tuple[Candidate, ...] | None = None,
    gpu_is_here: Callable[[], bool] = has_nvidia_gpu,
    warm_up_shapes: WarmUpShapes = lambda _: (),
    *,
    open_gpu: Callable[[int], Cuda] = open_cuda,
) -> ChosenEngine:
    """Open and warm up the first runtime that works, and record why the better ones did not.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        options: the operator's options.
        among: the runtimes to try; all of the table by default.
        gpu_is_here: whether there is a GPU; without one no GPU library is imported.
        warm_up_shapes: the shapes to run once; an engine with too little memory for them is passed over too.
        open_gpu: opens the GPU of that number; a race's result depends on the GPU's name and driver.

    Raises:
        ModelCorrupt: model.onnx is missing or is not the file that the manifest was written for, or the directory
            holds something other than regular files.
        EngineUnavailable: no runtime works, or the model is INT8 and that is forbidden; the message has every reason.
        EngineOutOfMemory: no runtime works, one of them only for lack of memory: it may work later.
        DeviceLost: the process must end, because no other engine works in it; the next process passes the engine over.
        LoadStopped: `options.notify` raised it, because the process ends.
    """
    to_try = candidates_for(options.choice) if among is None else among
    check_model(directory, manifest, int8=options.int8, reads_onnx=any(candidate.reads_onnx for candidate in to_try))
    why_no_gpu = _why_no_gpu(options, gpu_is_here)
    setup = Setup(directory, manifest, options.max_batch, {"threads": options.threads, "level": options.trt_level})
    device = processor_facts if why_no_gpu else partial(gpu_facts, open_gpu, options.gpu)
    losses = GpuLossMemory(options.cache_dir / "losses", setup, device, options.gpu_use)
    with losses.recording_losses() as load:
        race = _race(to_try, setup, options, device, None if why_no_gpu else losses)
        passed_over = dict(race.left_out)
        failure: type[EngineError] = EngineUnavailable
        for candidate in _in_order(to_try, race):
            if candidate.needs_gpu and (why := why_no_gpu or losses.why_not(candidate.name)):
                passed_over[candidate.name] = why
                continue
            try:
                engine = _open_and_warm_up(candidate, setup, options, race, warm_up_shapes, load)
            except (DeviceLost, LoadStopped):
                raise
            except (EngineError, ParityTooLow) as error:
                passed_over[candidate.name] = str(error)
                failure = EngineOutOfMemory if isinstance(error, EngineOutOfMemory) else failure
                continue
            except Exception as error:  # an unexpected error of one runtime must not keep the next from being tried
                _log.exception("engine failed to open", model=manifest.key, engine=candidate.name)
                passed_over[candidate.name] = f"{type(error).__name__}: {error}"
                continue
            _note_race(race, to_try, candidate.name, engine, passed_over)
            return _log_choice(manifest, engine, passed_over)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in passed_over.items())
    raise failure(f"no engine can run {manifest.key} here ({reasons or 'none was tried'})")


def _open_and_warm_up(
    candidate: Candidate, setup: Setup, options: EngineOptions, race: Raced, warm_up_shapes: WarmUpShapes, load: Load
) -> Engine:
    """Open an engine, unless the race has left it open, and run its shapes once."""
    options.notify(f"opening {candidate.name}")
    shapes = partial(_announced_shapes, warm_up_shapes, options.notify)
    raced = race.engine if candidate.name in race.result.order else None
    try:
        engine = warm_up_engine(raced or candidate.open(setup.directory, setup.manifest, options), shapes)
    except DeviceLost as lost:
        lost.engine = candidate.name
        raise
    load.engine = engine if candidate.needs_gpu else None
    return engine


def _log_choice(manifest: Manifest, engine: Engine, passed_over: dict[str, str]) -> ChosenEngine:
    facts = {"engine": engine.name, "precision": engine.precision, "device": engine.device, "passed_over": passed_over}
    _log.info("engine chosen", model=manifest.key, **facts)
    return ChosenEngine(engine, passed_over)


def _race(
    candidates: tuple[Candidate, ...],
    setup: Setup,
    options: EngineOptions,
    device: Callable[[], Mapping[str, object]],
    losses: GpuLossMemory | None,
) -> Raced:
    """Return the engines by speed: those of the GPU if `losses` is given, else of the CPU; NO_RACE if unknown."""
    if options.choice != "auto":
        return NO_RACE
    racers = [
        Racer(candidate.name, partial(candidate.open, setup.directory, setup.manifest, options))
        for candidate in candidates
        if candidate.needs_gpu == (losses is not None)
        and candidate.reads_onnx
        and not (losses and losses.why_not(candidate.name))
    ]
    return find_fastest(racers, setup, device, options.cache_dir / "races", options.race_s, options.notify) or NO_RACE


def _in_order(candidates: tuple[Candidate, ...], race: Raced) -> list[Candidate]:
    """Return the candidates with those that raced sorted by the result; the others keep their positions.

    Candidates that failed in this race are left out.
    """
    order = race.result.order
    raced = iter(sorted((one for one in candidates if one.name in order), key=lambda one: order.index(one.name)))
    there = (one for one in candidates if one.name not in race.left_out)
    return [next(raced) if one.name in order else one for one in there]


def _note_race(
    race: Raced, candidates: tuple[Candidate, ...], name: str, engine: Engine, passed_over: dict[str, str]
) -> None:
    """Note that the engine won a race: in its note, and as the reason against engines before it in the fixed order."""
    order, why = race.result.order, race.result.why
    if len(order) < 2 or name != order[0]:
        return
    engine.note = "; ".join(part for part in (engine.note, why) if part)
    names: list[str] = [candidate.name for candidate in candidates]
    passed_over.update({other: why for other in order[1:] if names.index(other) < names.index(name)})


def _announced_shapes(shapes: WarmUpShapes, notify: Callable[[str], None], engine: Engine) -> Iterator[BatchShape]:
    """Yield the shapes of the warm-up, and report each before it runs, because it may be compiled then."""
    every = list(shapes(engine))
    for number, shape in enumerate(every, 1):
        notify(f"warming up {engine.name}, shape {number} of {len(every)}")
        yield shape


def _why_no_gpu(options: EngineOptions, gpu_is_here: Callable[[], bool]) -> str:
    """Return why no GPU may be used; empty if one may."""
    if options.device == "cpu":
        return "--device cpu leaves the GPU alone"
    return "" if gpu_is_here() else "no NVIDIA GPU here"
