"""ONNX Runtime on an NVIDIA GPU, for hosts with neither TensorRT nor torch.

Inputs and outputs are bound to device memory, and a CUDA graph is replayed for each shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.decisions import DecisionCache
from engines.errors import EngineDead, EngineFailed, EngineUnavailable
from engines.feeds import batch_shape
from engines.gate import require_parity
from engines.manifest import ONNX_FILE, Manifest, TensorSpec
from engines.tensors import tensor_shape

_CUDA = "CUDAExecutionProvider"


@dataclass(slots=True)
class _Bound:
    """Device memory of one shape, and how its runs are made."""

    inputs: dict[str, Any]
    output: Any
    binding: Any
    options: Any


class OnnxRuntimeCudaEngine(Engine):
    """Runs model.onnx with the CUDA provider.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        gpu: which GPU.
        cache_dir: where the parity verdict is kept.
        max_batch: largest batch that the service sends.
        provider: the provider to bind memory of; the CPU's for tests.

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
        gpu: int = 0,
        cache_dir: Path,
        max_batch: int = 8,
        provider: str = _CUDA,
    ) -> None:
        self.manifest = manifest
        self.precision = manifest.precision
        self._place = ("cuda", gpu) if provider == _CUDA else ("cpu", 0)
        self.device = f"cuda:{gpu}" if provider == _CUDA else "cpu"
        self._bound: dict[BatchShape, _Bound] = {}
        self._graph_ids = count(1)
        self._ort: Any = _import_onnxruntime(provider)
        self._session: Any = _open_session(self._ort, directory / ONNX_FILE, manifest, provider, gpu)
        facts = {"onnx": manifest.onnx_sha256, "runtime": f"onnxruntime {self._ort.__version__}", "provider": provider}
        most = min(max_batch, manifest.max_batch)
        self.note = require_parity(self, directory, facts, DecisionCache(cache_dir / "precision"), most)

    def infer(self, feed: Feed) -> Outputs:
        if self._session is None:
            raise EngineDead(f"{self.manifest.key} on onnxrt is closed; load a new engine")
        shape = batch_shape(self.manifest, feed)
        try:
            bound = self._bound.get(shape)
            if bound is None:
                bound = self._bound[shape] = self._bind(shape)
            for name, array in feed.items():
                bound.inputs[name].update_inplace(array)
            self._session.run_with_iobinding(bound.binding, bound.options)
            return {"output": bound.output.numpy()}
        except Exception as error:  # the runtime raises a dozen unrelated types; all of them are this batch's
            self._bound.pop(shape, None)
            raise EngineFailed(f"{self.manifest.key} on onnxrt {self.device}: {_one_line(error)}") from error

    def close(self) -> None:
        self._bound.clear()
        self._session = None

    def _bind(self, shape: BatchShape) -> _Bound:
        binding = self._session.io_binding()
        inputs = {spec.name: self._allocate(spec, shape) for spec in self.manifest.inputs}
        output = self._allocate(self.manifest.output, shape)
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("output", output)
        options = self._ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(next(self._graph_ids)))  # a graph of its own for each shape
        return _Bound({str(name): value for name, value in inputs.items()}, output, binding, options)

    def _allocate(self, spec: TensorSpec, shape: BatchShape) -> Any:
        return self._ort.OrtValue.ortvalue_from_shape_and_type(tensor_shape(spec, shape), spec.dtype, *self._place)


def _import_onnxruntime(provider: str) -> Any:
    try:
        import onnxruntime as ort  # noqa: PLC0415 - only this engine needs it
    except ImportError as error:
        raise EngineUnavailable("onnxruntime is not installed; pip install onnxruntime-gpu") from error
    if provider not in ort.get_available_providers():
        raise EngineUnavailable("this onnxruntime has no CUDA provider; pip install onnxruntime-gpu in its place")
    return ort


def _open_session(ort: Any, path: Path, manifest: Manifest, provider: str, gpu: int) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    provider_options = {"device_id": str(gpu), "enable_cuda_graph": "1"} if provider == _CUDA else {}
    try:
        session = ort.InferenceSession(path, options, providers=[(provider, provider_options)])
    except Exception as error:  # the same dozen types; whatever it is, this graph does not load here
        raise EngineUnavailable(f"onnxrt cannot load {manifest.key} on the GPU: {_one_line(error)}") from error
    if provider not in session.get_providers():  # it falls back in silence where the driver or cuDNN is missing
        raise EngineUnavailable("onnxruntime's CUDA provider does not start here; see nvidia-smi, and install cuDNN 9")
    return session


def _one_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:300]
