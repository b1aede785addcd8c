"""ONNX Runtime on the CPU: the reference that the other engines are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.base import Engine, Feed, Outputs
from engines.errors import EngineDead, EngineFailed, EngineUnavailable, one_line
from engines.feeds import batch_shape
from engines.manifest import ONNX_FILE, Manifest


class OnnxRuntimeEngine(Engine):
    """Run model.onnx unchanged; FP16 graphs compute in the precision that the CPU provider has kernels for.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        threads: CPU threads; 0 means all cores.

    Raises:
        EngineUnavailable: onnxruntime is not installed, or it cannot load this graph.
    """

    name = "onnxrt"
    device = "cpu"

    def __init__(self, directory: Path, manifest: Manifest, *, threads: int = 0) -> None:
        self.manifest = manifest
        self.precision = manifest.precision
        self._session = _open_session(directory / ONNX_FILE, manifest, threads)

    def infer(self, feed: Feed) -> Outputs:
        if self._session is None:
            raise EngineDead(f"{self.manifest.key} on onnxrt is closed; load a new engine")
        batch_shape(self.manifest, feed)
        try:
            (output,) = self._session.run(["output"], dict(feed))
        except Exception as error:  # ONNX Runtime raises many unrelated types; each concerns this batch only
            raise EngineFailed(f"{self.manifest.key} on onnxrt: {one_line(error)}") from error
        return {"output": output}

    def close(self) -> None:
        self._session = None


def _open_session(path: Path, manifest: Manifest, threads: int) -> Any:
    try:
        import onnxruntime as ort  # noqa: PLC0415 - only this engine needs it
    except ImportError as error:
        raise EngineUnavailable("onnxruntime is not installed; pip install onnxruntime") from error
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above; this graph does not load here
        raise EngineUnavailable(f"onnxrt cannot load {manifest.key}: {one_line(error)}") from error
