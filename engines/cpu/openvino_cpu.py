"""OpenVINO on the CPU: the default on hosts without a GPU.

One compilation with dynamic shapes serves every tile and batch size: one for each shape was no faster
(docs/benchmarks.md). bf16 halves the time on processors that have it, and is used only where the outputs stay above the
model's parity bar, or beside INT8 layers above a bar of their own.

A batch of one row uses all threads. For larger batches there are two lanes with half of the threads each: with all
threads on one batch, every layer would wait for the slowest thread.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engines.base import Array, BatchShape, Feed, Outputs
from engines.cpu.lanes import LaneEngine
from engines.cpu.openvino_faults import endless_in_bf16
from engines.errors import EngineDead, EngineFailed, EngineUnavailable
from engines.feeds import batch_shape
from engines.files.record_cache import fingerprint
from engines.manifest import ONNX_FILE, Manifest
from engines.parity.comparison import compare
from engines.parity.decisions import Decision, DecisionCache
from engines.parity.probes import probe_feeds
from engines.tensors import tensor_shape

_DECISIONS_FORMAT = 1
"""The format of stored precision decisions; increased when the probes or the rule change, which discards older ones."""
_INT8_BAR_DB = 35.0
"""Least PSNR of bf16 beside INT8 layers: their roundings alone leave 37 to 44 dB, and what is computed wrongly 26."""
_LANES = 2
_SOURCE_LINE = re.compile(r"Exception from \S+:\d+:")


@dataclass(slots=True)
class _LaneBatch:
    """A batch that a lane computes."""

    feed: Feed
    """Inputs, which OpenVINO reads in place until the batch is finished."""
    output: Array
    computed: bool = False


class OpenVinoEngine(LaneEngine):
    """Compile and run model.onnx on this CPU.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        threads: CPU threads; 0 means all cores.
        cache_dir: folder for compiled graphs and precision decisions; made when needed.

    Raises:
        EngineUnavailable: openvino is not installed, or it cannot compile this graph.
    """

    name = "openvino"
    device = "cpu"

    def __init__(self, directory: Path, manifest: Manifest, *, threads: int = 0, cache_dir: Path) -> None:
        self.manifest = manifest
        compiler = _Compiler(directory / ONNX_FILE, manifest, threads, cache_dir / "openvino")
        decision = _choose_precision(compiler, manifest, DecisionCache(cache_dir / "precision"))
        self._request: Any = compiler.all_threads_request(decision.precision)
        self.precision, self.note = _executed_precision(self._request.get_compiled_model(), manifest, decision)
        self._lanes: list[Any] = compiler.lane_requests(decision.precision) if manifest.max_batch > 1 else []
        self._batches: dict[int, _LaneBatch] = {}
        self._tensor = compiler.tensor
        self.lanes = len(self._lanes) or 1

    def infer(self, feed: Feed) -> Outputs:
        shape = self._checked_shape(feed)
        try:
            if shape.batch == 1 or not self._lanes:
                return {"output": _run_request(self._request, feed)}
            return {"output": self._infer_on_lanes(feed, shape)}
        except Exception as error:  # OpenVINO raises RuntimeError and others; each concerns this batch only
            raise self._failed_error(error) from error

    def begin(self, lane: int, feed: Feed, done: Callable[[], None]) -> None:
        output = self._blank_output(self._checked_shape(feed))
        batch = _LaneBatch(feed, output)

        def computed(_: object) -> None:
            batch.computed = True
            done()

        try:
            self._start_on_lane(lane, feed, output, computed)
        except Exception as error:  # as in `infer`
            raise self._failed_error(error) from error
        self._batches[lane] = batch

    def ended(self, lane: int) -> bool:
        try:  # no callback is called for a batch that failed, and `wait_for` raises its error
            return self._batches[lane].computed or bool(self._lanes[lane].wait_for(0))
        except Exception:  # `end` raises the error
            return True

    def end(self, lane: int) -> Outputs:
        batch = self._batches.pop(lane)
        try:
            self._lanes[lane].wait()
        except Exception as error:  # as in `infer`
            raise self._failed_error(error) from error
        finally:
            # the callback would otherwise be kept alive until the next batch
            self._lanes[lane].set_callback(_do_nothing, None)
        return {"output": batch.output}

    def close(self) -> None:
        self._request, self._lanes = None, []

    def _infer_on_lanes(self, feed: Feed, shape: BatchShape) -> Array:
        """Compute an equal part on each lane; an odd last row is computed afterwards by all threads."""
        output = self._blank_output(shape)
        part = shape.batch // _LANES
        with ExitStack() as begun:  # waits for all started parts, whatever fails
            for lane, request in enumerate(self._lanes):
                rows = slice(lane * part, (lane + 1) * part)
                self._start_on_lane(
                    lane, {name: array[rows] for name, array in feed.items()}, output[rows], _do_nothing
                )
                begun.callback(request.wait)
        if shape.batch % _LANES:
            output[-1:] = _run_request(self._request, {name: array[-1:] for name, array in feed.items()})
        return output

    def _start_on_lane(self, lane: int, feed: Feed, output: Array, computed: Callable[[object], None]) -> None:
        request = self._lanes[lane]
        request.set_output_tensor(self._tensor(output, shared_memory=True))
        request.set_callback(computed, None)
        request.start_async(dict(feed), share_inputs=True)

    def _checked_shape(self, feed: Feed) -> BatchShape:
        if self._request is None:
            raise EngineDead(f"{self.manifest.key} on openvino is closed; load a new engine")
        return batch_shape(self.manifest, feed)

    def _blank_output(self, shape: BatchShape) -> Array:
        return np.empty(tensor_shape(self.manifest.output, shape), np.float32)

    def _failed_error(self, error: Exception) -> EngineFailed:
        return EngineFailed(f"{self.manifest.key} on openvino: {_one_line(error)}")


class _Compiler:
    """Compiles one graph, once for each precision that is asked for."""

    def __init__(self, path: Path, manifest: Manifest, threads: int, cache_dir: Path) -> None:
        try:
            import openvino as ov  # noqa: PLC0415 - only this engine needs it
        except ImportError as error:
            raise EngineUnavailable("openvino is not installed; pip install openvino") from error
        self._core = _openvino_core()
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
            raise EngineUnavailable(f"openvino cannot compile {self._key}: {_one_line(error)}") from error

    def all_threads_request(self, precision: str) -> Any:
        """Return an inference request in `fp32` or `bf16` that uses all threads."""
        if precision not in self._requests:
            compiled = self._compile(precision, {"PERFORMANCE_HINT": "LATENCY"})
            self._requests[precision] = compiled.create_infer_request()
        return self._requests[precision]

    def lane_requests(self, precision: str) -> list[Any]:
        """Return one inference request per lane, which share the threads; empty where there is only one thread."""
        if self.all_threads_request(precision).get_compiled_model().get_property("INFERENCE_NUM_THREADS") < _LANES:
            return []
        compiled = self._compile(precision, {"NUM_STREAMS": _LANES})
        return [compiled.create_infer_request() for _ in range(_LANES)]

    def _compile(self, precision: str, how: dict[str, Any]) -> Any:
        config = {**self._threads, **how, "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"}
        try:
            return self._core.compile_model(str(self._path), "CPU", {**config, **self._cache})
        except Exception:  # OpenVINO's own error types; a damaged or read-only cache must not matter
            try:
                return self._core.compile_model(str(self._path), "CPU", {**config, "CACHE_DIR": ""})
            except Exception as error:  # as above; without a cache, the graph is at fault
                raise EngineUnavailable(f"openvino cannot compile {self._key}: {_one_line(error)}") from error


@cache
def _openvino_core() -> Any:
    """Return the OpenVINO runtime: one for the process, and never freed.

    When OpenVINO's CPU plugin first compiles, it installs an alternate signal stack for that thread; when it is freed,
    it restores the previous one. That may belong to another plugin that was freed earlier, and then the next signal
    ends the process.
    """
    import openvino as ov  # noqa: PLC0415 - as above

    return ov.Core()


def _choose_precision(compiler: _Compiler, manifest: Manifest, cache: DecisionCache) -> Decision:
    """Choose bf16 where the processor has it and the outputs stay above the bar, else fp32.

    For an INT8 model it is the precision of the layers that are not INT8.
    """
    if not compiler.has_bf16:
        return Decision(precision="fp32", why="this processor has no bf16 instructions")
    key = fingerprint(
        {
            "format": _DECISIONS_FORMAT,
            "onnx": manifest.onnx_sha256,
            "bar_db": _bar_db(manifest),
            "probes": next(manifest.size.tile_sizes()),
            "runtime": f"openvino {compiler.version}",
            "processor": compiler.processor,
            "machine": platform.machine(),
            "precision": "bf16",
        }
    )
    if (known := cache.get(key)) and known.precision in ("bf16", "fp32"):
        return known
    if layer := endless_in_bf16(compiler.read_model()):
        return Decision(precision="fp32", why=f"OpenVINO never finishes compiling {layer} in bf16")
    decision = _measure_bf16(compiler, manifest)
    cache.put(key, decision)
    return decision


def _executed_precision(compiled: Any, manifest: Manifest, decision: Decision) -> tuple[str, str]:
    """Return what the graph computes in, and why: `int8` only if the compiled convolutions of an INT8 model do."""
    if manifest.precision != "int8":
        return decision.precision, decision.why
    kernels = [
        str(operation.get_rt_info()["primitiveType"].astype(str))
        for operation in compiled.get_runtime_model().get_ops()
        if operation.get_rt_info()["layerType"].astype(str) == "Convolution"
    ]
    int8 = sum(kernel.endswith("_I8") for kernel in kernels)
    why = f"{int8} of {len(kernels)} convolutions run INT8 kernels, the rest is {decision.precision}: {decision.why}"
    return ("int8" if int8 else decision.precision), why


def _bar_db(manifest: Manifest) -> float:
    return max(manifest.parity.bar_db, _INT8_BAR_DB if manifest.precision == "int8" else 0)


def _measure_bf16(compiler: _Compiler, manifest: Manifest) -> Decision:
    bar_db = _bar_db(manifest)
    reference, candidate = compiler.all_threads_request("fp32"), compiler.all_threads_request("bf16")
    verdict = compare(
        lambda feed: _run_request(reference, feed), lambda feed: _run_request(candidate, feed), probe_feeds(manifest)
    )
    if verdict.passes(bar_db):
        return Decision(precision="bf16", why=f"bf16 against fp32: {verdict}, the bar is {bar_db:g} dB")
    return Decision(precision="fp32", why=f"bf16 refused: {verdict}, the bar is {bar_db:g} dB")


def _run_request(request: Any, feed: Feed) -> Array:
    # shared memory for inputs and outputs avoids copies; one request serves every shape
    return np.asarray(request.infer(dict(feed), share_inputs=True, share_outputs=True)[0])


def _do_nothing(_: object) -> None:
    """Do nothing; the callback of requests that nobody waits for."""


def _one_line(error: Exception) -> str:
    """Return OpenVINO's message on one line, without the references to its source files that precede it."""
    return re.sub(r"\s+", " ", _SOURCE_LINE.sub("", str(error))).strip()[:300]
