"""The TensorRT engine: plans from a cache or built now, checked by the parity gate.

Device memory for the inputs and the output is allocated once, for the largest batch of the largest tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

import structlog

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Cuda, Stream
from engines.cuda.io_buffers import IoBuffers
from engines.errors import EngineDead, EngineError, EngineUnavailable
from engines.feeds import batch_shape
from engines.manifest import Manifest
from engines.parity.decisions import DecisionCache
from engines.parity.gate import require_parity
from engines.plan_cache import PlanCache
from engines.tensors import max_rows, max_shape
from engines.trt.build import BuildOptions
from engines.trt.library import TensorRt
from engines.trt.plans import PlanSource, plan_facts
from engines.trt.runtime import TrtRuntime

_log = structlog.get_logger(__name__)


class TrtEngine(Engine):
    """A loaded plan with its device memory.

    Args:
        directory: the model's version directory.
        manifest: its manifest.
        library: the TensorRT to use.
        cuda: the device; the engine makes a stream of its own on it.
        cache_dir: folder for plans, timing caches and parity results; made when needed.
        options: the build options of a plan that is not in the cache.

    Raises:
        EngineUnavailable: the plan can neither be loaded nor built here.
        EngineOutOfMemory: the device has too little free memory.
        ParityTooLow: the outputs are too far from ONNX Runtime's, or not finite.
    """

    name = "trt"

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        *,
        library: TensorRt,
        cuda: Cuda,
        cache_dir: Path,
        options: BuildOptions,
    ) -> None:
        self.manifest = manifest
        self.precision = manifest.precision
        self.device = f"cuda:{cuda.index}"
        self._closed = False
        self._cuda = cuda
        self._facts = plan_facts(manifest, library, cuda.device, options)
        self._runtime_caches = PlanCache(cache_dir / "runtime")
        self._resources = ExitStack()
        try:
            source = PlanSource(library, directory, manifest, options, cache_dir, self._facts)
            self._runtime = self._resources.enter_context(closing(self._load(source)))
            self._stream: Stream = self._resources.enter_context(closing(cuda.stream()))
            self.max_shape = max_shape(manifest, options.max_batch)
            self.max_rows = max_rows(manifest, options.max_batch)
            self._io = self._resources.enter_context(closing(IoBuffers(cuda, manifest, self.max_shape)))
            verdicts = DecisionCache(cache_dir / "precision")
            self.note = require_parity(self, directory, self._facts, verdicts, self.max_rows)
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> dict[str, int]:
        """Device addresses of every input and of `output`, for a pipeline that fills and reads the memory itself."""
        return self._io.addresses

    def use_graphs(self, on: bool) -> None:
        """Choose whether each shape is launched as one CUDA graph (the default) or kernel by kernel."""
        self._runtime.use_graphs = on

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        """Queue the computation of the batch in device memory on that stream, without waiting.

        Raises:
            EngineFailed: no profile covers the shape, or TensorRT refuses it.
            EngineOutOfMemory: the device has too little free memory.
        """
        self._runtime.enqueue(shape, self._io.addresses, stream)

    def warm_up(self, shapes: Iterable[BatchShape]) -> None:
        super().warm_up(shapes)
        if compiled := self._runtime.runtime_cache():
            self._runtime_caches.put(self._facts, compiled)

    def infer(self, feed: Feed) -> Outputs:
        if self._closed:
            raise EngineDead(f"{self.manifest.key} on trt is closed; load a new engine")
        shape = batch_shape(self.manifest, feed)
        return {"output": self._io.infer(feed, shape, self._stream, lambda: self.enqueue(shape, self._stream))}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._resources.close()
        except EngineError as error:  # a lost context cannot free its memory; the process ends anyway
            _log.warning("GPU memory not freed", model=self.manifest.key, reason=str(error))

    def _load(self, source: PlanSource) -> TrtRuntime:
        """Load the cached plan, or build a new one if there is none or the runtime refuses it."""
        if (plan := source.cached()) is not None:
            try:
                return self._open(source, plan)
            except EngineUnavailable as error:
                _log.warning("plan refused", model=self.manifest.key, reason=str(error))
                source.discard()
        return self._open(source, source.build())

    def _open(self, source: PlanSource, plan: bytes) -> TrtRuntime:
        compiled = self._runtime_caches.get(self._facts) or b""
        return TrtRuntime(source.library, self._cuda, plan, self.manifest, source.options.max_batch, compiled)
