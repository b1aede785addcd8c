"""torch.compile (inductor) on an NVIDIA GPU, for hosts with torch and without TensorRT.

Each shape has one compiled module and one CUDA graph. The engine runs `program.pt2`, which `retouch export --program`
writes with this host's own torch, because an older torch may not load a program of a newer one. Compiled code is cached
for the next start. Products of FP32 tensors use TF32, as torch's convolutions do by default, and as ONNX Runtime and
TensorRT do by default for both.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Stream, driver_version
from engines.errors import (
    DeviceLost,
    EngineDead,
    EngineError,
    EngineFailed,
    EngineOutOfMemory,
    EngineUnavailable,
    one_line,
)
from engines.feeds import batch_shape
from engines.manifest import Manifest, TensorSpec
from engines.parity.decisions import DecisionCache
from engines.parity.gate import require_parity
from engines.plan_cache import PlanCache
from engines.tensors import max_rows, max_shape, tensor_shape

if TYPE_CHECKING:
    import torch

PROGRAM_FILE = "program.pt2"

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _CompiledShape:
    """One compiled shape: its views of the engine's memory, the compiled module and the module's CUDA graph."""

    inputs: dict[str, torch.Tensor]
    output: torch.Tensor
    module: Any
    graph: Any = None

    def run(self) -> None:
        """Run the module kernel by kernel, without the graph."""
        self.output.copy_(self.module(*self.inputs.values()))


class InductorEngine(Engine):
    """Compile and run the model's exported program, once for each shape.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        device: `cuda:0`, …; `cpu` runs without graphs, for tests.
        cache_dir: folder for compiled code and parity results; made when needed.
        max_batch: the largest batch that the service sends.
        backend: the backend of torch.compile.

    Raises:
        EngineUnavailable: torch, the GPU or `program.pt2` is missing, or the program does not load in this torch.
        ParityTooLow: the outputs are too far from ONNX Runtime's.
    """

    name = "inductor"

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        *,
        device: str = "cuda:0",
        cache_dir: Path,
        max_batch: int = 8,
        backend: str = "inductor",
    ) -> None:
        self.manifest = manifest
        self.precision = manifest.precision
        self.device = device
        stat = _stat_program_file(directory / PROGRAM_FILE)  # before the import of torch, which takes seconds
        self._torch = _import_torch(device)
        # TF32 has 10 bits of mantissa, as FP16: enough for scores that are FP32 only for range, in a tenth of the time
        self._torch.set_float32_matmul_precision("high")
        self._backend = backend
        self.max_shape, self.max_rows = max_shape(manifest, max_batch), max_rows(manifest, max_batch)
        self._memory = {
            spec.name: self._allocate_zeros(spec, self.max_shape) for spec in (*manifest.inputs, manifest.output)
        }
        self._graphs = True
        self._pool: Any = None
        self._streams: dict[int, Any] = {}
        self._shapes: dict[BatchShape, _CompiledShape] = {}
        self._facts = self._cache_key_facts(stat)
        self._artifacts = PlanCache(cache_dir / "inductor")
        if (kept := self._artifacts.get(self._facts)) is not None:
            self._torch.compiler.load_cache_artifacts(kept)
        self._program: Any = _load_program(self._torch, directory / PROGRAM_FILE, manifest, device)
        self.note = require_parity(self, directory, self._facts, DecisionCache(cache_dir / "precision"), self.max_rows)

    @property
    def addresses(self) -> Mapping[str, int]:
        """Device addresses of every input and of `output`, for a pipeline that fills and reads the memory itself."""
        return {name: tensor.data_ptr() for name, tensor in self._memory.items()}

    def use_graphs(self, on: bool) -> None:
        """Choose whether each shape is launched as one CUDA graph (the default) or kernel by kernel."""
        self._graphs = on

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        """Compute the batch in device memory on that stream; waits only when a shape is compiled first.

        The batch is padded to a power of two with rows that earlier batches left in memory.

        Raises:
            EngineFailed, EngineOutOfMemory, EngineDead: as for `infer`.
        """
        with self._translate_errors():
            compiled = self._get_or_compile(shape)
            with self._torch.cuda.stream(self._torch_stream(stream)):
                self._launch(compiled)

    def warm_up(self, shapes: Iterable[BatchShape]) -> None:
        super().warm_up(shapes)
        if (saved := self._torch.compiler.save_cache_artifacts()) is not None:
            self._artifacts.put(self._facts, saved[0])

    def infer(self, feed: Feed) -> Outputs:
        with self._translate_errors():
            return {"output": self._run_batch(batch_shape(self.manifest, feed), feed)}

    def close(self) -> None:
        self._shapes.clear()
        self._streams.clear()
        self._memory.clear()
        self._program = self._pool = None
        if self.device != "cpu" and self._torch.cuda.is_initialized():
            with suppress(RuntimeError):  # raised if the device is lost, which the caller knows
                self._torch.cuda.empty_cache()  # else torch keeps the freed memory from other engines

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate torch's errors into this project's; a closed engine raises EngineDead."""
        if self._program is None:
            raise EngineDead(f"{self.manifest.key} on inductor is closed; load a new engine")
        try:
            with self._torch.inference_mode():
                yield
        except EngineError:
            raise
        except Exception as error:
            raise _to_engine_error(self._torch, error, self.manifest.key) from error

    def _run_batch(self, shape: BatchShape, feed: Feed) -> Any:
        compiled = self._get_or_compile(shape)
        for name, array in feed.items():
            compiled.inputs[name][: shape.batch].copy_(self._torch.from_numpy(array))
        self._launch(compiled)
        return compiled.output[: shape.batch].cpu().numpy()

    def _launch(self, compiled: _CompiledShape) -> None:
        if compiled.graph is not None and self._graphs:
            compiled.graph.replay()
        else:
            compiled.run()

    def _get_or_compile(self, shape: BatchShape) -> _CompiledShape:
        max_rows = max(min(self.max_rows, self.max_shape.batch // shape.samples), shape.batch)
        padded = shape._replace(batch=min(_next_power_of_2(shape.batch), max_rows))
        return self._shapes.get(padded) or self._compile(padded)

    def _compile(self, shape: BatchShape) -> _CompiledShape:
        """Compile a module for this shape: static shapes give the fastest code and are never recompiled."""
        inputs = {str(spec.name): self._tensor_view(spec, shape) for spec in self.manifest.inputs}
        module = self._torch.compile(self._program.module(), dynamic=False, backend=self._backend)
        compiled = _CompiledShape(inputs, self._tensor_view(self.manifest.output, shape), module)
        if self.device != "cpu":
            self._record_graph(compiled)
        self._shapes[shape] = compiled
        return compiled

    def _record_graph(self, compiled: _CompiledShape) -> None:
        torch = self._torch
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):  # compiles and autotunes, neither of which can be captured
            for _ in range(3):
                compiled.run()
        side.synchronize()
        self._pool = self._pool or torch.cuda.graph_pool_handle()  # one pool for all graphs: they never run at once
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            compiled.run()
        compiled.graph = graph

    def _torch_stream(self, stream: Stream) -> Any:
        handle = int(stream.handle)
        if handle not in self._streams:
            self._streams[handle] = self._torch.cuda.ExternalStream(handle, device=self.device)
        return self._streams[handle]

    def _tensor_view(self, spec: TensorSpec, shape: BatchShape) -> torch.Tensor:
        """View the start of a tensor's memory in the shape of a batch."""
        wanted, memory = tensor_shape(spec, shape), self._memory[spec.name]
        if math.prod(wanted) > memory.numel():
            raise EngineFailed(
                f"{self.manifest.key}: {spec.name} of {wanted}; the engine was opened for batches of "
                f"{self.max_shape.batch}"
            )
        return memory[: math.prod(wanted)].view(wanted)

    def _allocate_zeros(self, spec: TensorSpec, shape: BatchShape) -> torch.Tensor:
        """Allocate flat zeroed memory for one tensor of a batch."""
        count = math.prod(tensor_shape(spec, shape))
        zeros: torch.Tensor = self._torch.zeros(count, dtype=getattr(self._torch, spec.dtype), device=self.device)
        return zeros

    def _cache_key_facts(self, stat: os.stat_result) -> dict[str, Any]:
        on_gpu = self.device != "cpu"
        return {
            "model": self.manifest.key,
            "onnx": self.manifest.onnx_sha256,
            "program": [stat.st_size, stat.st_mtime_ns],
            "runtime": f"torch {self._torch.__version__}",
            "gpu": self._torch.cuda.get_device_name(self.device) if on_gpu else "cpu",
            "driver": driver_version() if on_gpu else 0,
            "backend": self._backend,
            "FP32 products": self._torch.get_float32_matmul_precision(),
        }


def _stat_program_file(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise EngineUnavailable(f"{path} is not there; retouch export --program writes it") from error


def _import_torch(device: str) -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise EngineUnavailable("torch is not installed; pip install -e '.[export]'") from error
    if device != "cpu" and not torch.cuda.is_available():
        raise EngineUnavailable("torch sees no NVIDIA GPU; see nvidia-smi, and that torch is a CUDA build")
    return torch


def _load_program(torch: Any, path: Path, manifest: Manifest, device: str) -> Any:
    try:
        program = torch.export.load(path)
        if device == "cpu":
            return program
        passes = importlib.import_module("torch.export.passes")
        return passes.move_to_device_pass(program, device)
    except Exception as error:  # the archive readers raise many unrelated error types
        raise EngineUnavailable(
            f"torch {torch.__version__} cannot load the program of {manifest.key}: {one_line(error)}; "
            "write it anew here with retouch export --program"
        ) from error


def _to_engine_error(torch: Any, error: Exception, key: str) -> EngineError:
    message = f"{key} on inductor: {one_line(error)}"
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return EngineOutOfMemory(f"{message}; use smaller batches")
    if "CUDA error" in str(error) and not _device_responds(torch):
        return DeviceLost(f"{message}; start the process again")
    return EngineFailed(message)


def _device_responds(torch: Any) -> bool:
    """Return whether the device still answers: after some CUDA errors every later call fails."""
    try:
        torch.cuda.synchronize()
    except Exception:  # any failure of the simplest call means that it does not
        return False
    return True


def _next_power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()
