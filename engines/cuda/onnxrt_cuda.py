"""ONNX Runtime on an NVIDIA GPU, for hosts with neither TensorRT nor torch.

The session runs on a stream of its own, on memory that is bound to it; a CUDA graph of its own is replayed for each
shape, as ONNX Runtime records it. The provider keeps its graphs by thread (PerThreadContext): what the loader's thread
recorded at the warm-up, the worker's records again at the first batch of each shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Cuda, Stream
from engines.cuda.device_io import DeviceIo
from engines.errors import EngineDead, EngineError, EngineFailed, EngineOutOfMemory, EngineUnavailable
from engines.feeds import batch_shape
from engines.manifest import ONNX_FILE, Manifest
from engines.parity.decisions import DecisionCache
from engines.parity.gate import require_parity
from engines.tensors import largest_batch, most_rows, tensor_shape

_CUDA = "CUDAExecutionProvider"
_NO_GRAPH = "-1"

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Bound:
    """The memory of one shape, and how its runs are made."""

    binding: Any
    options: Any


class OnnxRuntimeCudaEngine(Engine):
    """Runs model.onnx with the CUDA provider.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        cuda: the device; this engine makes its own stream on it.
        cache_dir: where the parity verdict is kept.
        max_batch: largest batch that the service sends.
        provider: the provider to run; the CPU's for tests, which computes at once and not on a stream.

    Raises:
        EngineUnavailable: this onnxruntime has no such provider, or it does not start (no GPU, no cuDNN).
        ParityTooLow: the outputs are too far from the CPU's.
    """

    name = "onnxrt"

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        *,
        cuda: Cuda,
        cache_dir: Path,
        max_batch: int = 8,
        provider: str = _CUDA,
    ) -> None:
        self.manifest = manifest
        self.precision = manifest.precision
        self._on_gpu = provider == _CUDA
        self.device = f"cuda:{cuda.index}" if self._on_gpu else "cpu"
        self.most, self.most_rows = largest_batch(manifest, max_batch), most_rows(manifest, max_batch)
        self._cuda = cuda
        self._graphs = True
        self._bound: dict[tuple[BatchShape, bool], _Bound] = {}
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
        try:
            self._stream: Stream = self._resources.enter_context(closing(cuda.stream()))
            self._handed_in = self._resources.enter_context(closing(cuda.event()))
            self._handed_out = self._resources.enter_context(closing(cuda.event()))
            self._io = self._resources.enter_context(closing(DeviceIo(cuda, manifest, self.most)))
            self._ort: Any = ort
            options = self._provider_options() if self._on_gpu else {}
            self._session = _open_session(ort, directory / ONNX_FILE, manifest, provider, options)
            self.note = require_parity(self, directory, facts, DecisionCache(cache_dir / "precision"), self.most_rows)
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> Mapping[str, int]:
        """Device memory of every input and of `output`, for a pipeline that fills and reads it itself."""
        return self._io.addresses

    def use_graphs(self, on: bool) -> None:
        """Launch each shape as one CUDA graph (as from the start), or kernel by kernel."""
        self._graphs = on

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        """Compute what lies in device memory, after what is on that stream and before what comes on it.

        The first runs of a shape tune and record, and are waited for.

        Raises:
            EngineFailed, EngineOutOfMemory, EngineDead: as `infer`.
        """
        if self._session is None:
            raise EngineDead(f"{self.manifest.key} on onnxrt is closed; load a new engine")
        key = (shape, self._graphs)
        try:
            bound = self._bound.get(key)
            if bound is None:
                bound = self._bound[key] = self._bind(shape)
            if not self._on_gpu:
                stream.synchronise()
            self._handed_in.record(stream)
            self._stream.wait_for(self._handed_in)
            self._session.run_with_iobinding(bound.binding, bound.options)
            self._handed_out.record(self._stream)
            stream.wait_for(self._handed_out)
        except EngineError:
            raise
        except Exception as error:  # the runtime raises a dozen unrelated types; all of them are this batch's
            self._bound.pop(key, None)
            self._stream.synchronise()  # raises DeviceLost where that is what is behind it
            raise self._translated(error) from error

    def infer(self, feed: Feed) -> Outputs:
        if self._session is None:
            raise EngineDead(f"{self.manifest.key} on onnxrt is closed; load a new engine")
        shape = batch_shape(self.manifest, feed)
        return {"output": self._io.infer(feed, shape, self._stream, lambda: self.enqueue(shape, self._stream))}

    def close(self) -> None:
        self._bound.clear()
        self._session = None
        try:
            self._resources.close()
        except EngineError as error:  # a lost context cannot free its memory, and need not
            _log.warning("GPU memory not freed", model=self.manifest.key, reason=str(error))

    def _bind(self, shape: BatchShape) -> _Bound:
        binding = self._session.io_binding()
        place = ("cuda" if self._on_gpu else "cpu", self._cuda.index if self._on_gpu else 0)
        for spec in self.manifest.inputs:
            described = np.dtype(spec.dtype).type, tensor_shape(spec, shape), self.addresses[spec.name]
            binding.bind_input(spec.name, *place, *described)
        binding.bind_output(
            "output", *place, np.float32, tensor_shape(self.manifest.output, shape), self.addresses["output"]
        )
        options = self._ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(next(self._graph_ids)) if self._graphs else _NO_GRAPH)
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return _Bound(binding, options)

    def _provider_options(self) -> dict[str, str]:
        return {
            "device_id": str(self._cuda.index),
            "user_compute_stream": str(int(self._stream.handle)),
            "enable_cuda_graph": "1",
        }

    def _translated(self, error: Exception) -> EngineError:
        said = f"{self.manifest.key} on onnxrt {self.device}: {_one_line(error)}"
        if re.search("out of memory|failed to allocate memory", str(error), re.IGNORECASE):
            return EngineOutOfMemory(f"{said}; use smaller batches")
        return EngineFailed(said)


def import_onnxruntime(provider: str = _CUDA) -> Any:
    """The module.

    Raises:
        EngineUnavailable: it is not installed, or without this provider; the message says what to install.
    """
    try:
        import onnxruntime as ort  # noqa: PLC0415 - only this engine needs it
    except ImportError as error:
        raise EngineUnavailable("onnxruntime is not installed; pip install onnxruntime-gpu") from error
    if provider not in ort.get_available_providers():
        raise EngineUnavailable("this onnxruntime has no CUDA provider; pip install onnxruntime-gpu in its place")
    return ort


def _open_session(ort: Any, path: Path, manifest: Manifest, provider: str, provider_options: dict[str, str]) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(path, options, providers=[(provider, provider_options)])
    except Exception as error:  # the same dozen types; whatever it is, this graph does not load here
        raise EngineUnavailable(f"onnxrt cannot load {manifest.key} on the GPU: {_one_line(error)}") from error
    if provider not in session.get_providers():  # it falls back in silence where the driver or cuDNN is missing
        raise EngineUnavailable("onnxruntime's CUDA provider does not start here; see nvidia-smi, and install cuDNN 9")
    return session


def _one_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:300]
