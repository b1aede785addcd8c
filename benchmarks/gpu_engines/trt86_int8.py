"""A trial of TensorRT 8.6 on a graph with INT8 layers, which the service's own builder refuses.

The flags FP16 and INT8 are set, and no layer's type is pinned.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from engines.base import Array, BatchShape, Feed
from engines.cuda.api import open_cuda
from engines.manifest import ONNX_FILE, read_manifest
from engines.trt.build import parse_network
from engines.trt.library import load_tensorrt


class Trt86Int8:
    """Build the plan of a model unless it lies in the folder, and run it.

    Args:
        directory: the model's version directory.
        work: the folder of the plan, and of what TensorRT says of its layers.
        side: tiles are of this side to twice of it, tuned for that.
        most: the largest batch.
        level: the builder's optimisation level.
    """

    def __init__(self, directory: Path, work: Path, *, side: int, most: int, level: int) -> None:
        self._manifest, self._library, self._cuda = read_manifest(directory), load_tensorrt(), open_cuda()
        self._sides, self._most = (side, 2 * side), most
        rewritten = directory / "model.trt86.onnx"  # trt86_graph.py writes it, and the numbers that are inputs in it
        self._graph = rewritten if rewritten.exists() else directory / ONNX_FILE
        path = work / f"{self._manifest.name}-trial.plan"
        if not path.exists():
            path.write_bytes(self._build(level))
        trt = self._library.module
        self._engine = trt.Runtime(self._library.logger).deserialize_cuda_engine(path.read_bytes())
        with suppress(Exception):  # what it says is for reading only
            inspector = self._engine.create_engine_inspector()
            path.with_suffix(".layers.json").write_text(
                inspector.get_engine_information(trt.LayerInformationFormat.JSON)
            )
        self._stream = self._cuda.stream()
        specs = (*self._manifest.inputs, self._manifest.output)
        sizes = {str(spec.name): most * int(spec.shape[1]) * self._sides[1] ** 2 * 4 for spec in specs}
        self._device = {name: self._cuda.device_buffer(size) for name, size in sizes.items()}
        self._pinned = {name: self._cuda.pinned_buffer(size) for name, size in sizes.items()}
        if rewritten.exists():
            self._put_factors(rewritten.with_suffix(".npz"))
        self._contexts: dict[int, Any] = {}

    def enqueue(self, shape: BatchShape, stream: Any) -> None:
        """Compute what lies in device memory."""
        if not self._context(shape).execute_async_v3(int(stream.handle)):
            raise RuntimeError(f"it does not run: {self._library.take_errors()}")

    def infer(self, feed: Feed) -> Array:
        """Compute a batch, from host memory to host memory."""
        rows, _, height, width = feed["image"].shape
        for name, array in feed.items():
            self._pinned[name].array(array.shape, "float32")[:] = array
            self._cuda.copy_in(self._device[name], self._pinned[name], array.nbytes, self._stream)
        self.enqueue(BatchShape(rows, height, width), self._stream)
        device, pinned = self._device["output"], self._pinned["output"]
        self._cuda.copy_out(pinned, device, rows * 3 * height * width * 4, self._stream)
        self._stream.synchronise()
        return np.array(pinned.array((rows, 3, height, width), "float32"))

    def _build(self, level: int) -> bytes:
        trt = self._library.module
        builder = trt.Builder(self._library.logger)
        network = parse_network(self._library, builder, self._graph, self._manifest)
        config = builder.create_builder_config()
        config.builder_optimization_level = level
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        for flag in ("FP16", "INT8"):
            config.set_flag(getattr(trt.BuilderFlag, flag))
        wanted = (trt.TacticSource.EDGE_MASK_CONVOLUTIONS, trt.TacticSource.JIT_CONVOLUTIONS)
        config.set_tactic_sources(sum(1 << int(source) for source in wanted))
        for least, largest in ((1, 1), (2, self._most)):
            profile = builder.create_optimization_profile()
            for spec in self._manifest.inputs:
                ends = zip((least, largest), self._sides, strict=True)
                small, large = ((rows, spec.shape[1], side, side) for rows, side in ends)
                profile.set_shape(spec.name, small, large, large)
            config.add_optimization_profile(profile)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise RuntimeError(f"no plan: {self._library.take_errors()}")
        return bytes(plan)

    def _put_factors(self, file: Path) -> None:
        kept = np.load(file)
        for number, name in enumerate(kept["names"]):
            array = kept[f"n{number}"]
            device, pinned = self._cuda.device_buffer(array.nbytes), self._cuda.pinned_buffer(array.nbytes)
            pinned.array(array.shape, "float32")[:] = array
            self._cuda.copy_in(device, pinned, array.nbytes, self._stream)
            self._stream.synchronise()
            self._device[str(name)] = device

    def _context(self, shape: BatchShape) -> Any:
        profile = int(shape.batch > 1)
        if profile not in self._contexts:
            context = self._contexts[profile] = self._engine.create_execution_context()
            context.set_optimization_profile_async(profile, int(self._stream.handle))
            self._stream.synchronise()
            for name, buffer in self._device.items():
                context.set_tensor_address(name, buffer.address)
        for spec in self._manifest.inputs:
            wanted = (shape.batch, spec.shape[1], shape.height, shape.width)
            self._contexts[profile].set_input_shape(spec.name, wanted)
        return self._contexts[profile]
