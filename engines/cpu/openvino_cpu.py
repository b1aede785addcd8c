"""OpenVINO on the CPU: the default where there is no GPU.

One compile with dynamic shapes serves every bucket and batch: a compile per shape was no faster (docs/benchmarks.md).
bf16 halves the time on processors that have it, and is used only where its outputs stay above the model's bar.

A row on its own has all threads. Beside that there are two lanes with half of the threads each, for batches that go
their own way: all threads on one row would meet in each layer, and wait for whichever has lost its core.
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
from engines.errors import EngineDead, EngineFailed, EngineUnavailable
from engines.feeds import batch_shape
from engines.manifest import ONNX_FILE, Manifest
from engines.parity.comparison import compare
from engines.parity.decisions import Decision, DecisionCache, fingerprint
from engines.parity.probes import probe_feeds
from engines.tensors import tensor_shape

_DECISIONS_FORMAT = 1
"""Counted up when the probes or the rule change, so that older decisions are not believed."""
_LANES = 2
_SOURCE_LINE = re.compile(r"Exception from \S+:\d+:")


@dataclass(slots=True)
class _Flight:
    """A batch on its lane."""

    feed: Feed
    """Read where it lies, until the end."""
    output: Array
    computed: bool = False


class OpenVinoEngine(LaneEngine):
    """Compiles model.onnx for this CPU.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        threads: CPU threads; 0 means all cores.
        cache_dir: where compiled graphs and precision decisions are kept; made when needed.

    Raises:
        EngineUnavailable: openvino is not installed, or it cannot compile this graph.
    """

    name = "openvino"
    device = "cpu"

    def __init__(self, directory: Path, manifest: Manifest, *, threads: int = 0, cache_dir: Path) -> None:
        self.manifest = manifest
        compiler = _Compiler(directory / ONNX_FILE, manifest, threads, cache_dir / "openvino")
        decision = _decide(compiler, manifest, DecisionCache(cache_dir / "precision"))
        self.precision = decision.precision
        self.note = decision.why
        self._request: Any = compiler.request(decision.precision)
        self._lanes: list[Any] = compiler.lanes(decision.precision) if manifest.max_batch > 1 else []
        self._flights: dict[int, _Flight] = {}
        self._tensor = compiler.tensor
        self.lanes = len(self._lanes) or 1

    def infer(self, feed: Feed) -> Outputs:
        shape = self._shape(feed)
        try:
            if shape.batch == 1 or not self._lanes:
                return {"output": _run(self._request, feed)}
            return {"output": self._infer_side_by_side(feed, shape)}
        except Exception as error:  # the runtime raises RuntimeError and its kin; all of them are this batch's
            raise self._failure(error) from error

    def begin(self, lane: int, feed: Feed, done: Callable[[], None]) -> None:
        output = self._blank_output(self._shape(feed))
        flight = _Flight(feed, output)

        def computed(_: object) -> None:
            flight.computed = True
            done()

        try:
            self._start(lane, feed, output, computed)
        except Exception as error:  # as above
            raise self._failure(error) from error
        self._flights[lane] = flight

    def ended(self, lane: int) -> bool:
        try:  # of a batch that failed nobody is told, and asking raises
            return self._flights[lane].computed or bool(self._lanes[lane].wait_for(0))
        except Exception:  # `end` says what it was
            return True

    def end(self, lane: int) -> Outputs:
        flight = self._flights.pop(lane)
        try:
            self._lanes[lane].wait()
        except Exception as error:  # as above
            raise self._failure(error) from error
        finally:
            self._lanes[lane].set_callback(_nobody, None)  # it would keep who was told until the next batch
        return {"output": flight.output}

    def close(self) -> None:
        self._request, self._lanes = None, []

    def _infer_side_by_side(self, feed: Feed, shape: BatchShape) -> Array:
        """An equal part on each lane; of an odd number of rows the last one afterwards, by all threads."""
        output = self._blank_output(shape)
        part = shape.batch // _LANES
        with ExitStack() as begun:  # whatever fails, nothing runs on when this returns
            for lane, request in enumerate(self._lanes):
                rows = slice(lane * part, (lane + 1) * part)
                self._start(lane, {name: array[rows] for name, array in feed.items()}, output[rows], _nobody)
                begun.callback(request.wait)
        if shape.batch % _LANES:
            output[-1:] = _run(self._request, {name: array[-1:] for name, array in feed.items()})
        return output

    def _start(self, lane: int, feed: Feed, output: Array, computed: Callable[[object], None]) -> None:
        request = self._lanes[lane]
        request.set_output_tensor(self._tensor(output, shared_memory=True))
        request.set_callback(computed, None)
        request.start_async(dict(feed), share_inputs=True)

    def _shape(self, feed: Feed) -> BatchShape:
        if self._request is None:
            raise EngineDead(f"{self.manifest.key} on openvino is closed; load a new engine")
        return batch_shape(self.manifest, feed)

    def _blank_output(self, shape: BatchShape) -> Array:
        return np.empty(tensor_shape(self.manifest.output, shape), np.float32)

    def _failure(self, error: Exception) -> EngineFailed:
        return EngineFailed(f"{self.manifest.key} on openvino: {_one_line(error)}")


class _Compiler:
    """Compiles one graph in the precisions asked for, each once."""

    def __init__(self, path: Path, manifest: Manifest, threads: int, cache_dir: Path) -> None:
        try:
            import openvino as ov  # noqa: PLC0415 - only this engine needs it
        except ImportError as error:
            raise EngineUnavailable("openvino is not installed; pip install openvino") from error
        self._core = _core()
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

    def request(self, precision: str) -> Any:
        """An inference request of the graph in `fp32` or `bf16`, which all threads work on."""
        if precision not in self._requests:
            compiled = self._compile(precision, {"PERFORMANCE_HINT": "LATENCY"})
            self._requests[precision] = compiled.create_infer_request()
        return self._requests[precision]

    def lanes(self, precision: str) -> list[Any]:
        """A request for each lane, which share the threads; none where there is one thread only."""
        if self.request(precision).get_compiled_model().get_property("INFERENCE_NUM_THREADS") < _LANES:
            return []
        compiled = self._compile(precision, {"NUM_STREAMS": _LANES})
        return [compiled.create_infer_request() for _ in range(_LANES)]

    def _compile(self, precision: str, how: dict[str, Any]) -> Any:
        config = {**self._threads, **how, "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"}
        try:
            return self._core.compile_model(str(self._path), "CPU", {**config, **self._cache})
        except Exception:  # the runtime's own types; a cache that is damaged or read-only must not matter
            try:
                return self._core.compile_model(str(self._path), "CPU", {**config, "CACHE_DIR": ""})
            except Exception as error:  # the same; now it is the graph
                raise EngineUnavailable(f"openvino cannot compile {self._key}: {_one_line(error)}") from error


@cache
def _core() -> Any:
    """The runtime, one for the process and never freed.

    Its CPU plugin gives the thread that first compiles a stack for signals, and takes it back when it is freed: to the
    one of before, which by then may be that of another plugin, freed first. The next signal then ends the process.
    """
    import openvino as ov  # noqa: PLC0415 - as above

    return ov.Core()


def _decide(compiler: _Compiler, manifest: Manifest, cache: DecisionCache) -> Decision:
    """bf16 where the processor has it and the model's bar holds, else fp32."""
    if not compiler.has_bf16:
        return Decision(precision="fp32", why="this processor has no bf16 instructions")
    key = fingerprint(
        {
            "format": _DECISIONS_FORMAT,
            "onnx": manifest.onnx_sha256,
            "bar_db": manifest.parity.bar_db,
            "probes": next(manifest.size.buckets()),
            "runtime": f"openvino {compiler.version}",
            "processor": compiler.processor,
            "machine": platform.machine(),
            "precision": "bf16",
        }
    )
    if (known := cache.get(key)) and known.precision in ("bf16", "fp32"):
        return known
    decision = _measure(compiler, manifest)
    cache.put(key, decision)
    return decision


def _measure(compiler: _Compiler, manifest: Manifest) -> Decision:
    bar_db = manifest.parity.bar_db
    reference, candidate = compiler.request("fp32"), compiler.request("bf16")
    verdict = compare(lambda feed: _run(reference, feed), lambda feed: _run(candidate, feed), probe_feeds(manifest))
    if verdict.passes(bar_db):
        return Decision(precision="bf16", why=f"bf16 against fp32: {verdict}, the bar is {bar_db:g} dB")
    return Decision(precision="fp32", why=f"bf16 refused: {verdict}, the bar is {bar_db:g} dB")


def _run(request: Any, feed: Feed) -> Array:
    # shared memory both ways: nothing is copied, and one request takes every shape
    return np.asarray(request.infer(dict(feed), share_inputs=True, share_outputs=True)[0])


def _nobody(_: object) -> None:
    """Is told that a batch was computed."""


def _one_line(error: Exception) -> str:
    """What went wrong, without the lines of OpenVINO's sources that come before it."""
    return re.sub(r"\s+", " ", _SOURCE_LINE.sub("", str(error))).strip()[:300]
