"""ONNX Runtime on an NVIDIA GPU, for hosts with neither TensorRT nor torch.

The session has its own stream, and its inputs and output are bound to fixed device memory; ONNX Runtime records one
CUDA graph for each shape. The CUDA provider keeps its graphs per thread (PerThreadContext), so every run is on the
session's own thread: the device worker finds the graphs that the warm-up recorded for the loader thread.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import ExitStack, closing, redirect_stdout
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Cuda, Stream
from engines.cuda.io_buffers import IoBuffers
from engines.cuda.run_thread import RunThread
from engines.errors import EngineDead, EngineError, EngineFailed, EngineOutOfMemory, EngineUnavailable, one_line
from engines.feeds import batch_shape
from engines.manifest import ONNX_FILE, Manifest
from engines.parity.decisions import DecisionCache
from engines.parity.gate import require_parity
from engines.tensors import max_rows, max_shape, tensor_shape

_CUDA = "CUDAExecutionProvider"
_NO_GRAPH = "-1"
_WARNINGS, _ERRORS = 2, 3
"""Severities of ONNX Runtime's loggers; the default logger begins at warnings."""
_TINY_MODEL = (
    b'\x08\x08:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)
"""An ONNX model of one node, y = Identity(x), of IR version 8 and opset 13, as the `onnx` package may be missing."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _ShapeBinding:
    """The binding of one shape to device memory, and the options of its runs."""

    binding: Any
    options: Any


class OnnxRuntimeCudaEngine(Engine):
    """Run model.onnx with ONNX Runtime's CUDA provider.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        cuda: the device; the engine makes a stream of its own on it.
        cache_dir: folder for parity results.
        max_batch: the largest batch that the service sends.
        provider: the execution provider; tests pass the CPU provider, which computes synchronously.
        join_s: seconds that `close` waits for a run; if it hangs, its memory is left to the end of the process.

    Raises:
        EngineUnavailable: this onnxruntime has no such provider, or it does not start (no GPU, no cuDNN).
        ParityTooLow: the outputs are too far from the CPU's.
    """

    name = "onnxrt"

    def __init__(  # noqa: PLR0913 -- two are for tests
        self,
        directory: Path,
        manifest: Manifest,
        *,
        cuda: Cuda,
        cache_dir: Path,
        max_batch: int = 8,
        provider: str = _CUDA,
        join_s: float = 10.0,
    ) -> None:
        self.manifest = manifest
        self.precision = manifest.precision
        self._on_gpu = provider == _CUDA
        self.device = f"cuda:{cuda.index}" if self._on_gpu else "cpu"
        self.max_shape, self.max_rows = max_shape(manifest, max_batch), max_rows(manifest, max_batch)
        self._cuda = cuda
        self._graphs = True
        self._bindings: dict[tuple[BatchShape, bool], _ShapeBinding] = {}
        self._graph_ids = count(1)
        self._resources = ExitStack()
        self._session: Any = None
        ort = import_onnxruntime(provider)
        facts = {
            "onnx": manifest.onnx_sha256,
            "runtime": f"onnxruntime {ort.__version__}",
            "provider": provider,
            "gpu": cuda.device.name,
            "capability": list(cuda.device.capability),
            "driver": cuda.device.driver,
        }
        self._runner = RunThread(f"onnxrt {manifest.key}", join_s)
        try:
            self._stream: Stream = self._resources.enter_context(closing(cuda.stream()))
            self._inputs_ready = self._resources.enter_context(closing(cuda.event()))
            self._outputs_ready = self._resources.enter_context(closing(cuda.event()))
            self._io = self._resources.enter_context(closing(IoBuffers(cuda, manifest, self.max_shape)))
            self._ort: Any = ort
            options = self._provider_options() if self._on_gpu else {}
            self._session = _open_session(ort, directory / ONNX_FILE, manifest.key, provider, options)
            self.note = require_parity(self, directory, facts, DecisionCache(cache_dir / "precision"), self.max_rows)
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> Mapping[str, int]:
        """Device addresses of every input and of `output`, for a pipeline that fills and reads the memory itself."""
        return self._io.addresses

    def use_graphs(self, on: bool) -> None:
        """Choose whether each shape is launched as one CUDA graph (the default) or kernel by kernel."""
        self._graphs = on

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        """Compute the batch in device memory, after the earlier work on that stream and before its later work.

        The first runs of a shape tune kernels and record the graph, and block.

        Raises:
            EngineFailed, EngineOutOfMemory, EngineDead: as for `infer`.
        """
        if self._session is None:
            raise EngineDead(f"{self.manifest.key} on onnxrt is closed; load a new engine")
        key = (shape, self._graphs)
        try:
            binding = self._bindings.get(key)
            if binding is None:
                binding = self._bindings[key] = self._bind_shape(shape)
            if not self._on_gpu:
                stream.synchronise()
            self._inputs_ready.record(stream)
            self._stream.wait_for(self._inputs_ready)
            self._runner.call(self._session.run_with_iobinding, binding.binding, binding.options)
            self._outputs_ready.record(self._stream)
            stream.wait_for(self._outputs_ready)
        except EngineError:
            raise
        except Exception as error:  # ONNX Runtime raises many unrelated types; each concerns this batch only
            self._bindings.pop(key, None)
            self._stream.synchronise()  # raises DeviceLost if the context is lost
            raise self._to_engine_error(error) from error

    def infer(self, feed: Feed) -> Outputs:
        if self._session is None:
            raise EngineDead(f"{self.manifest.key} on onnxrt is closed; load a new engine")
        shape = batch_shape(self.manifest, feed)
        return {"output": self._io.infer(feed, shape, self._stream, lambda: self.enqueue(shape, self._stream))}

    def close(self) -> None:
        self._bindings.clear()
        self._session = None
        if not self._runner.close():  # a hanging run still uses the memory, and freeing it would wait for the run
            self._resources.pop_all()
            _log.warning("GPU memory not freed", model=self.manifest.key, reason="a run hangs; start the process again")
            return
        try:
            self._resources.close()
        except EngineError as error:  # a lost context cannot free its memory; the process ends anyway
            _log.warning("GPU memory not freed", model=self.manifest.key, reason=str(error))

    def _bind_shape(self, shape: BatchShape) -> _ShapeBinding:
        binding = self._session.io_binding()
        device = ("cuda" if self._on_gpu else "cpu", self._cuda.index if self._on_gpu else 0)
        for spec in self.manifest.inputs:
            described = np.dtype(spec.dtype).type, tensor_shape(spec, shape), self.addresses[spec.name]
            binding.bind_input(spec.name, *device, *described)
        binding.bind_output(
            "output", *device, np.float32, tensor_shape(self.manifest.output, shape), self.addresses["output"]
        )
        options = self._ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(next(self._graph_ids)) if self._graphs else _NO_GRAPH)
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return _ShapeBinding(binding, options)

    def _provider_options(self) -> dict[str, str]:
        return {
            "device_id": str(self._cuda.index),
            "user_compute_stream": str(int(self._stream.handle)),
            "enable_cuda_graph": "1",
        }

    def _to_engine_error(self, error: Exception) -> EngineError:
        message = f"{self.manifest.key} on onnxrt {self.device}: {one_line(error)}"
        if re.search("out of memory|failed to allocate memory", str(error), re.IGNORECASE):
            return EngineOutOfMemory(f"{message}; use smaller batches")
        return EngineFailed(message)


def import_onnxruntime(provider: str = _CUDA) -> Any:
    """Import onnxruntime.

    Raises:
        EngineUnavailable: it is not installed, or without this provider; the message says what to install.
    """
    try:
        import onnxruntime as ort  # noqa: PLC0415 - only this engine needs it
    except ImportError as error:
        raise EngineUnavailable("onnxruntime is not installed; retouch install-gpu") from error
    if provider not in ort.get_available_providers():
        raise EngineUnavailable("this onnxruntime has no CUDA provider; `retouch install-gpu` may replace it by one")
    if provider == _CUDA and hasattr(ort, "preload_dlls"):
        with redirect_stdout(io.StringIO()):  # it prints what it does not find; the session's own error names it
            ort.preload_dlls()  # pip puts CUDA libraries where the dynamic linker does not search
    return ort


def start_onnxruntime(provider: str = _CUDA) -> Any:
    """Import onnxruntime and start its provider with a tiny model; its list of providers only says what was built in.

    Raises:
        EngineUnavailable: it is not installed, has no such provider, or that does not start (no GPU, no cuDNN).
    """
    ort = import_onnxruntime(provider)
    _open_session(ort, _TINY_MODEL, "a tiny model", provider, {})
    return ort


def _open_session(ort: Any, model: Path | bytes, name: str, provider: str, provider_options: dict[str, str]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS
    if provider == _CUDA:
        ort.set_default_logger_severity(_ERRORS)  # it warns at each session that this provider is not a plugin
    try:
        session = ort.InferenceSession(model, options, providers=[(provider, provider_options)])
    except Exception as error:  # as above; this graph does not load here
        raise EngineUnavailable(f"onnxrt cannot load {name} on the GPU: {one_line(error)}") from error
    finally:
        if provider == _CUDA:
            ort.set_default_logger_severity(_WARNINGS)
    # onnxruntime silently falls back to the CPU where the driver or cuDNN is missing
    if provider not in session.get_providers():
        raise EngineUnavailable("onnxruntime's CUDA provider does not start here; see nvidia-smi, and install cuDNN 9")
    return session
