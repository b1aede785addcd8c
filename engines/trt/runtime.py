"""Runs a deserialised plan: one context and one CUDA graph for each shape, on shared scratch memory."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.base import BatchShape
from engines.cuda.api import Cuda, DeviceBuffer, Graph, Stream
from engines.errors import EngineError, EngineFailed, EngineOutOfMemory, EngineUnavailable
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from engines.trt.build import make_profiles
from engines.trt.library import TensorRt

_MIN_SCRATCH_BYTES = 256


@dataclass(slots=True)
class _ShapeRunner:
    """The context of one shape, for its first run, and the CUDA graph for later runs."""

    context: Any
    graph: Graph | None = None
    capturable: bool = True


class TrtRuntime:
    """A loaded plan that runs on device memory of the caller.

    Args:
        library: the TensorRT that built the plan.
        cuda: the device.
        plan: the serialised engine.
        manifest: the model's manifest, which describes the inputs.
        max_batch: the largest batch that the plan was built for.
        runtime_cache: machine code that TensorRT-RTX compiled at an earlier start; empty for none.

    Raises:
        EngineUnavailable: the plan is damaged, or was built for another GPU or version.
        EngineOutOfMemory: the device has too little free memory.
    """

    max_shapes = 64
    """Shapes that keep a context and a graph; beyond that the least recently used one is dropped."""
    use_graphs = True
    """Whether to run CUDA graphs; False launches kernel by kernel, to measure what graphs save."""

    def __init__(
        self,
        library: TensorRt,
        cuda: Cuda,
        plan: bytes,
        manifest: Manifest,
        max_batch: int,
        runtime_cache: bytes = b"",
    ) -> None:
        self._library = library
        self._cuda = cuda
        self._manifest = manifest
        self._profiles = make_profiles(manifest, max_batch, spanning=library.builds_slowly)
        self._runners: OrderedDict[BatchShape, _ShapeRunner] = OrderedDict()
        library.take_errors()
        try:
            self._runtime = library.module.Runtime(library.logger)
        except TypeError as error:  # the bindings raise TypeError where the library finds no GPU
            raise EngineUnavailable(f"{library.name} does not start: {'; '.join(library.take_errors())}") from error
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise _error_from_log(EngineUnavailable, f"{library.name} cannot load the plan: ", library.take_errors())
        self._context_config = _context_config(library, self._engine, runtime_cache)
        self._scratch = cuda.device_buffer(max(_scratch_bytes(self._engine), _MIN_SCRATCH_BYTES))

    def enqueue(self, shape: BatchShape, addresses: Mapping[str, int], stream: Stream) -> None:
        """Queue one batch on the stream.

        Args:
            shape: the shape of the batch; a profile must cover it.
            addresses: device memory of every input and of `output`; the same every time for a shape, because the
                graph remembers them.
            stream: the stream to queue the batch on.

        Raises:
            EngineFailed: no profile covers the shape, or TensorRT refuses it.
            EngineOutOfMemory: the device has too little free memory.
        """
        runner = self._runners.get(shape)
        if runner is None:
            runner = self._runners[shape] = _ShapeRunner(self._create_shape_context(shape, addresses, stream))
            self._drop_oldest_runners()
        self._runners.move_to_end(shape)
        if runner.graph is not None and self.use_graphs:
            runner.graph.launch(stream)
            return
        self._execute_batch(
            runner.context, shape, stream
        )  # the first run is eager: lazy initialisation cannot be captured
        if runner.capturable and self.use_graphs and runner.graph is None:
            self._capture(runner, shape, stream)

    def runtime_cache(self) -> bytes:
        """Return the code that TensorRT-RTX compiled, to be stored for the next start; empty with other libraries."""
        cache = self._context_config.get_runtime_cache() if self._context_config is not None else None
        return bytes(cache.serialize()) if cache is not None else b""

    def close(self) -> None:
        """Free the contexts, graphs and scratch memory; a second call does nothing."""
        while self._runners:
            self._drop_runner(next(iter(self._runners)))
        self._engine = self._runtime = self._context_config = None
        self._scratch.close()

    def _create_shape_context(self, shape: BatchShape, addresses: Mapping[str, int], stream: Stream) -> Any:
        index = next((i for i, profile in enumerate(self._profiles) if profile.holds(shape)), None)
        if index is None:
            raise EngineFailed(f"no profile of the plan holds {shape.batch} tiles of {shape.width}×{shape.height}")
        context = _create_context(self._library, self._engine, self._context_config)
        if context is None:
            raise self._failed_error(shape, "no execution context")
        _set_scratch(context, self._scratch)
        ok = context.set_optimization_profile_async(index, stream.handle)
        stream.synchronise()
        for spec in self._manifest.inputs:
            ok = ok and context.set_input_shape(spec.name, tensor_shape(spec, shape))
        for name, address in addresses.items():
            ok = ok and context.set_tensor_address(name, address)
        if not ok:
            raise self._failed_error(shape, "the shape is refused")
        return context

    def _execute_batch(self, context: Any, shape: BatchShape, stream: Stream) -> None:
        if not context.execute_async_v3(int(stream.handle)):
            raise self._failed_error(shape, "the batch is refused")

    def _capture(self, runner: _ShapeRunner, shape: BatchShape, stream: Stream) -> None:
        """Record the batch as a CUDA graph; a shape that cannot be recorded keeps running without one."""
        capturable = getattr(runner.context, "is_stream_capturable", lambda _: True)
        if not capturable(int(stream.handle)):
            runner.capturable = False
            return
        try:
            with self._cuda.capture(stream) as finish:
                self._execute_batch(runner.context, shape, stream)
            runner.graph = finish()
        except EngineFailed:
            runner.capturable = False

    def _drop_oldest_runners(self) -> None:
        while len(self._runners) > self.max_shapes:
            self._drop_runner(next(iter(self._runners)))

    def _drop_runner(self, shape: BatchShape) -> None:
        runner = self._runners.pop(shape)
        if runner.graph is not None:
            runner.graph.close()

    def _failed_error(self, shape: BatchShape, what: str) -> EngineError:
        message = f"{self._library.name}: {what} for {shape.batch} tiles of {shape.width}×{shape.height}"
        return _error_from_log(EngineFailed, message, ["", *self._library.take_errors()])


def _error_from_log(otherwise: type[EngineError], message: str, logged: list[str]) -> EngineError:
    """Make an error from the log: TensorRT only returns None or False, and the log tells whether memory ran out."""
    reasons = "; ".join(logged)
    if re.search("out ?of ?memory", reasons, re.IGNORECASE):
        return EngineOutOfMemory(f"{message}{reasons[:500]}; use smaller batches or free some GPU memory")
    return otherwise(f"{message}{reasons[:500]}")


def _scratch_bytes(engine: Any) -> int:
    # 8.6 has only the first name, 10 and later have both, RTX only the second
    return int(engine.device_memory_size_v2 if hasattr(engine, "device_memory_size_v2") else engine.device_memory_size)


def _set_scratch(context: Any, scratch: DeviceBuffer) -> None:
    if hasattr(context, "set_device_memory"):
        context.set_device_memory(scratch.address, scratch.nbytes)
    else:
        context.device_memory = scratch.address


def _context_config(library: TensorRt, engine: Any, runtime_cache: bytes) -> Any:
    """Configure contexts of TensorRT-RTX: caller's memory and a shared cache of compiled code; None for the others."""
    if not library.is_rtx:
        return None
    config = engine.create_runtime_config()
    config.set_execution_context_allocation_strategy(library.module.ExecutionContextAllocationStrategy.USER_MANAGED)
    cache = config.create_runtime_cache()
    if runtime_cache:
        cache.deserialize(runtime_cache)
    config.set_runtime_cache(cache)
    return config


def _create_context(library: TensorRt, engine: Any, config: Any) -> Any:
    if config is not None:
        return engine.create_execution_context(config)
    if hasattr(library.module, "ExecutionContextAllocationStrategy"):
        return engine.create_execution_context(library.module.ExecutionContextAllocationStrategy.USER_MANAGED)
    return engine.create_execution_context_without_device_memory()
