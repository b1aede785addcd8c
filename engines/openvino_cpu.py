"""OpenVINO on the CPU: the default where there is no GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from engines.base import Engine, Feed, Outputs
from engines.errors import EngineDead, EngineFailed, EngineUnavailable
from engines.feeds import batch_shape
from engines.manifest import ONNX_FILE, Manifest


class OpenVinoEngine(Engine):
    """Compiles model.onnx for this CPU.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        threads: CPU threads; 0 means all cores.
        cache_dir: where compiled blobs are kept.

    Raises:
        EngineUnavailable: openvino is not installed, or it cannot compile this graph.
    """

    name = "openvino"
    device = "cpu"

    def __init__(self, directory: Path, manifest: Manifest, *, threads: int = 0, cache_dir: Path) -> None:
        self.manifest = manifest
        self.precision = "fp32"
        self._request: Any = _compile(directory / ONNX_FILE, manifest, threads, cache_dir).create_infer_request()

    def infer(self, feed: Feed) -> Outputs:
        if self._request is None:
            raise EngineDead(f"{self.manifest.key} on openvino is closed; load a new engine")
        batch_shape(self.manifest, feed)
        try:
            results = self._request.infer(dict(feed), share_inputs=True, share_outputs=True)
        except Exception as error:  # the runtime raises RuntimeError and its kin; all of them are this batch's
            raise EngineFailed(f"{self.manifest.key} on openvino: {_first_line(error)}") from error
        return {"output": np.asarray(results[0])}

    def close(self) -> None:
        self._request = None


def _compile(path: Path, manifest: Manifest, threads: int, cache_dir: Path) -> Any:
    try:
        import openvino as ov  # noqa: PLC0415 - only this engine needs it
    except ImportError as error:
        raise EngineUnavailable("openvino is not installed; pip install openvino") from error
    core = ov.Core()
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "CACHE_DIR": str(cache_dir / "openvino"),
    }
    try:
        return core.compile_model(str(path), "CPU", config)
    except Exception as error:  # the runtime's own types; whatever it is, this graph does not compile here
        raise EngineUnavailable(f"openvino cannot compile {manifest.key}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:300]
