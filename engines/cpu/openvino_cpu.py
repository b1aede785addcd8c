"""OpenVINO on the CPU: the default on hosts without a GPU.

One compilation with dynamic shapes serves every tile and batch size: a compilation for each shape was no faster
(docs/measurements/cpu.md, "Engines alone"). bf16 halves the time on processors that have it, and is used only where the
outputs stay above the model's parity bar and fills within its limit of grey levels; beside INT8 layers, only above a
bar of their own.

A batch of one row uses all threads. For larger batches there are two lanes with half of the threads each: with all
threads on one batch, every layer would wait for the slowest thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engines.base import Array, BatchShape, Feed, Outputs
from engines.cpu.lanes import LaneEngine
from engines.cpu.openvino_compiler import LANES, Compiler, one_line, run_request
from engines.cpu.openvino_precision import choose_precision, executed_precision
from engines.errors import EngineDead, EngineFailed
from engines.feeds import batch_shape
from engines.manifest import ONNX_FILE, Manifest
from engines.parity.decisions import DecisionCache
from engines.tensors import tensor_shape


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
        compiler = Compiler(directory / ONNX_FILE, manifest, threads, cache_dir / "openvino")
        decision = choose_precision(compiler, manifest, DecisionCache(cache_dir / "precision"))
        self._request: Any = compiler.all_threads_request(decision.precision)
        self.precision, self.note = executed_precision(self._request.get_compiled_model(), manifest, decision)
        self._lanes: list[Any] = compiler.lane_requests(decision.precision) if manifest.max_batch > 1 else []
        self._batches: dict[int, _LaneBatch] = {}
        self._tensor = compiler.tensor
        self.lanes = len(self._lanes) or 1

    def infer(self, feed: Feed) -> Outputs:
        shape = self._checked_shape(feed)
        try:
            if shape.batch == 1 or not self._lanes:
                return {"output": run_request(self._request, feed)}
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
        try:  # a failed batch calls no callback, and `wait_for` raises its error
            return self._batches[lane].computed or bool(self._lanes[lane].wait_for(0))
        except Exception:  # `end` will raise the error
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
        part = shape.batch // LANES
        with ExitStack() as begun:  # waits for all started parts, whatever fails
            for lane, request in enumerate(self._lanes):
                rows = slice(lane * part, (lane + 1) * part)
                self._start_on_lane(
                    lane, {name: array[rows] for name, array in feed.items()}, output[rows], _do_nothing
                )
                begun.callback(request.wait)
        if shape.batch % LANES:
            output[-1:] = run_request(self._request, {name: array[-1:] for name, array in feed.items()})
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
        return EngineFailed(f"{self.manifest.key} on openvino: {one_line(error)}")


def _do_nothing(_: object) -> None:
    """Do nothing: the callback of a lane whose batch has been taken."""
