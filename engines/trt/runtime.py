"""A deserialised plan: a context and a CUDA graph for each shape that is used, on shared scratch memory."""

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
from engines.trt.build import profiles
from engines.trt.library import TensorRt

_SCRATCH_AT_LEAST = 256


@dataclass(slots=True)
class _Launch:
    """How one shape is run: through its context the first time, through its graph from then on."""

    context: Any
    graph: Graph | None = None
    capturable: bool = True


class TrtRuntime:
    """Runs a plan on device memory that the caller owns.

    Args:
        library: the TensorRT that built the plan.
        cuda: the device.
        plan: the serialised engine.
        manifest: of its model: what the inputs are.
        max_batch: that the plan was built with.
        runtime_cache: what TensorRT-RTX compiled at an earlier start; empty for none.

    Raises:
        EngineUnavailable: the plan is damaged, or was built for another GPU or version.
        EngineOutOfMemory: there is no room for it.
    """

    max_shapes = 64
    """Shapes whose context and graph are kept; the least recently used one goes first."""
    use_graphs = True
    """False launches kernel by kernel: for measuring what graphs are worth."""

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
        self._profiles = profiles(manifest, max_batch, spanning=library.builds_slowly)
        self._launches: OrderedDict[BatchShape, _Launch] = OrderedDict()
        library.take_errors()
        try:
            self._runtime = library.module.Runtime(library.logger)
        except TypeError as error:  # what the bindings raise where the library finds no GPU
            raise EngineUnavailable(f"{library.name} does not start: {'; '.join(library.take_errors())}") from error
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise _error(EngineUnavailable, f"{library.name} cannot load the plan: ", library.take_errors())
        self._context_config = _context_config(library, self._engine, runtime_cache)
        self._scratch = cuda.device_buffer(max(_scratch_bytes(self._engine), _SCRATCH_AT_LEAST))

    def enqueue(self, shape: BatchShape, addresses: Mapping[str, int], stream: Stream) -> None:
        """Start one batch.

        Args:
            shape: the batch; some profile must hold it.
            addresses: device memory of every input and of `output`; the same for a shape every time, because the
                graph remembers them.
            stream: where the work is queued.

        Raises:
            EngineFailed: no profile holds the shape, or TensorRT refuses it.
            EngineOutOfMemory: TensorRT has no room for it.
        """
        launch = self._launches.get(shape)
        if launch is None:
            launch = self._launches[shape] = _Launch(self._context(shape, addresses, stream))
            self._forget_oldest()
        self._launches.move_to_end(shape)
        if launch.graph is not None and self.use_graphs:
            launch.graph.launch(stream)
            return
        self._execute(launch.context, shape, stream)  # once eagerly: lazy initialisation cannot be captured
        if launch.capturable and self.use_graphs and launch.graph is None:
            self._capture(launch, shape, stream)

    def runtime_cache(self) -> bytes:
        """What TensorRT-RTX compiled, to be kept for the next start; empty with the other libraries."""
        cache = self._context_config.get_runtime_cache() if self._context_config is not None else None
        return bytes(cache.serialize()) if cache is not None else b""

    def close(self) -> None:
        """Free contexts, graphs and scratch; twice is allowed."""
        while self._launches:
            self._forget(next(iter(self._launches)))
        self._engine = self._runtime = self._context_config = None
        self._scratch.close()

    def _context(self, shape: BatchShape, addresses: Mapping[str, int], stream: Stream) -> Any:
        index = next((i for i, profile in enumerate(self._profiles) if profile.holds(shape)), None)
        if index is None:
            raise EngineFailed(f"no profile of the plan holds {shape.batch} tiles of {shape.width}×{shape.height}")
        context = _create_context(self._library, self._engine, self._context_config)
        if context is None:
            raise self._failed(shape, "no execution context")
        _set_scratch(context, self._scratch)
        ok = context.set_optimization_profile_async(index, stream.handle)
        stream.synchronise()
        for spec in self._manifest.inputs:
            ok = ok and context.set_input_shape(spec.name, tensor_shape(spec, shape))
        for name, address in addresses.items():
            ok = ok and context.set_tensor_address(name, address)
        if not ok:
            raise self._failed(shape, "the shape is refused")
        return context

    def _execute(self, context: Any, shape: BatchShape, stream: Stream) -> None:
        if not context.execute_async_v3(int(stream.handle)):
            raise self._failed(shape, "the batch is refused")

    def _capture(self, launch: _Launch, shape: BatchShape, stream: Stream) -> None:
        """Record the batch as a graph; a shape that cannot be recorded goes on without one."""
        capturable = getattr(launch.context, "is_stream_capturable", lambda _: True)
        if not capturable(int(stream.handle)):
            launch.capturable = False
            return
        try:
            with self._cuda.capture(stream) as finish:
                self._execute(launch.context, shape, stream)
            launch.graph = finish()
        except EngineFailed:
            launch.capturable = False

    def _forget_oldest(self) -> None:
        while len(self._launches) > self.max_shapes:
            self._forget(next(iter(self._launches)))

    def _forget(self, shape: BatchShape) -> None:
        launch = self._launches.pop(shape)
        if launch.graph is not None:
            launch.graph.close()

    def _failed(self, shape: BatchShape, what: str) -> EngineError:
        said = f"{self._library.name}: {what} for {shape.batch} tiles of {shape.width}×{shape.height}"
        return _error(EngineFailed, said, ["", *self._library.take_errors()])


def _error(otherwise: type[EngineError], said: str, heard: list[str]) -> EngineError:
    """TensorRT only says None or False: whether memory is what is missing is in what its logger heard."""
    reasons = "; ".join(heard)
    if re.search("out ?of ?memory", reasons, re.IGNORECASE):
        return EngineOutOfMemory(f"{said}{reasons[:500]}; use smaller batches or free some GPU memory")
    return otherwise(f"{said}{reasons[:500]}")


def _scratch_bytes(engine: Any) -> int:
    # 8.6 has the first name only, 10 and later both, RTX the second only
    return int(engine.device_memory_size_v2 if hasattr(engine, "device_memory_size_v2") else engine.device_memory_size)


def _set_scratch(context: Any, scratch: DeviceBuffer) -> None:
    if hasattr(context, "set_device_memory"):
        context.set_device_memory(scratch.address, scratch.nbytes)
    else:
        context.device_memory = scratch.address


def _context_config(library: TensorRt, engine: Any, runtime_cache: bytes) -> Any:
    """RTX: contexts use caller's memory and share what was compiled; the others need no configuration."""
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
