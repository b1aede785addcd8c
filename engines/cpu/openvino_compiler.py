"""Compiles graphs for OpenVINO's CPU plugin."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engines.base import Array, Feed
from engines.errors import EngineUnavailable
from engines.manifest import Manifest

LANES = 2
_SOURCE_LINE = re.compile(r"Exception from \S+:\d+:")


class Compiler:
    """Compiles one graph, once for each precision that is requested."""

    def __init__(self, path: Path, manifest: Manifest, threads: int, cache_dir: Path) -> None:
        try:
            ov = _import_openvino()
        except ImportError as error:
            raise EngineUnavailable("openvino is not installed; pip install openvino") from error
        self._core = openvino_core()
        self._path = path
        self._key = manifest.key
        self._threads = {"INFERENCE_NUM_THREADS": threads}
        self._cache = {"CACHE_DIR": str(cache_dir)}
        self._requests: dict[str, Any] = {}
        self.tensor: Any = ov.Tensor
        self.version: str = ov.get_version()

    @property
    def processor(self) -> str:
        return str(self._core.get_property("CPU", "FULL_DEVICE_NAME"))

    @property
    def has_bf16(self) -> bool:
        return "BF16" in self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")

    def read_model(self) -> Any:
        """Return the graph as OpenVINO reads it, an `openvino.Model`.

        Raises:
            EngineUnavailable: it cannot be read.
        """
        try:
            return self._core.read_model(str(self._path))
        except Exception as error:  # OpenVINO's own error types
            raise EngineUnavailable(f"openvino cannot compile {self._key}: {one_line(error)}") from error

    def all_threads_request(self, precision: str) -> Any:
        """Return an inference request in `fp32` or `bf16` that uses all threads."""
        if precision not in self._requests:
            compiled = self._compile(precision, {"PERFORMANCE_HINT": "LATENCY"})
            self._requests[precision] = compiled.create_infer_request()
        return self._requests[precision]

    def lane_requests(self, precision: str) -> list[Any]:
        """Return one inference request per lane, which share the threads; empty where there is only one thread."""
        if self.all_threads_request(precision).get_compiled_model().get_property("INFERENCE_NUM_THREADS") < LANES:
            return []
        compiled = self._compile(precision, {"NUM_STREAMS": LANES})
        return [compiled.create_infer_request() for _ in range(LANES)]

    def _compile(self, precision: str, how: dict[str, Any]) -> Any:
        config = {**self._threads, **how, "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"}
        try:
            return self._core.compile_model(str(self._path), "CPU", {**config, **self._cache})
        except Exception:  # OpenVINO's own error types; the cache may be damaged or read-only: tried again without
            try:
                return self._core.compile_model(str(self._path), "CPU", {**config, "CACHE_DIR": ""})
            except Exception as error:  # as above; without a cache, the graph is at fault
                raise EngineUnavailable(f"openvino cannot compile {self._key}: {one_line(error)}") from error


@cache
def openvino_core() -> Any:
    """Return the OpenVINO runtime: one for the process, and never freed.

    When OpenVINO's CPU plugin first compiles, it installs an alternate signal stack for that thread; when it is freed,
    it restores the previous one. If that belonged to another plugin that was freed earlier, the next signal ends the
    process.
    """
    return _import_openvino().Core()


def _import_openvino() -> Any:
    """Import OpenVINO, which only this engine needs, without its telemetry.

    The telemetry would report each import to Google Analytics from a forked process, and keep a user id in ~/intel.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if it were not installed
    import openvino  # noqa: PLC0415 - only this engine needs it

    return openvino


def run_request(request: Any, feed: Feed) -> Array:
    """Run an inference request; the output is overwritten by its next run."""
    # shared memory for inputs and outputs avoids copies; one request serves every shape
    return np.asarray(request.infer(dict(feed), share_inputs=True, share_outputs=True)[0])


def one_line(error: Exception) -> str:
    """Return OpenVINO's message on one line, without the references to its source files that precede it."""
    return re.sub(r"\s+", " ", _SOURCE_LINE.sub("", str(error))).strip()[:300]
