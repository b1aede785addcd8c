"""Remembers which engines lost the GPU while they loaded a model, so that the next process passes them over.

A lost GPU ends the process. Without this record the next process would open the same engine and lose the GPU again.
After a fault in one engine's kernel every call of every engine fails, so an engine is blamed only if no other was
loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from weakref import WeakSet

import structlog
from pydantic import BaseModel, ConfigDict

from engines.base import Engine
from engines.cuda.api import Cuda
from engines.cuda.status_errors import is_kernel_fault
from engines.errors import DeviceLost
from engines.files.record_cache import RecordCache, fingerprint
from engines.race.finding import Setup

_log = structlog.get_logger(__name__)


class GpuLoss(BaseModel):
    """A recorded loss of the GPU, with the error's message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    why: str


@dataclass(eq=False, slots=True)
class Load:
    """One model that is being loaded.

    alone: whether no other model of the process was loaded or loading meanwhile, and none had lost the GPU before.
    engine: the engine on the GPU that was loaded, if any.
    """

    alone: bool
    engine: Engine | None = None


class GpuUse:
    """The models of one process that are loaded or being loaded on its GPU. An engine counts until it is freed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loads: set[Load] = set()
        self._engines: WeakSet[Engine] = WeakSet()
        self._lost = False

    @contextmanager
    def load(self) -> Iterator[Load]:
        """Count a load until the block ends, and afterwards its engine until that is freed."""
        with self._lock:
            load = Load(alone=not (self._loads or len(self._engines) or self._lost))
            for other in self._loads:
                other.alone = False
            self._loads.add(load)
        try:
            yield load
        except DeviceLost:
            self._lost = True
            raise
        finally:
            with self._lock:
                self._loads.remove(load)
                if load.engine is not None:
                    self._engines.add(load.engine)


class GpuLossMemory:
    """The losses of one model on one GPU.

    Args:
        folder: the folder of the records; made when it is needed.
        setup: the model and its settings. A loss does not count for other files, settings or versions of the runtimes.
        device: returns the facts of the GPU. A loss does not count for another GPU; if the facts cannot be read, it
            counts for any.
        use: the models of this process on the GPU.
    """

    def __init__(self, folder: Path, setup: Setup, device: Callable[[], Mapping[str, object]], use: GpuUse) -> None:
        self._folder, self._setup, self._device, self._use = folder, setup, device, use
        self._records = RecordCache(folder, GpuLoss, "loss")
        self._keys: dict[str, str] = {}  # made before an engine is opened: a lost GPU cannot be asked for its facts

    def why_not(self, engine: str) -> str:
        """Return why an engine is passed over; empty if it is not.

        Losses are recorded only for engines that this method was called for.
        """
        if engine not in self._keys:
            try:
                facts = self._setup.facts([engine])
            except OSError as error:  # opening the engine will report the missing file
                _log.warning("losses of the GPU not read", model=self._setup.manifest.key, reason=error.strerror)
                return ""
            self._keys[engine] = fingerprint({**facts, **self._facts(), "what": "loss"})
        loss = self._records.get(self._keys[engine])
        if loss is None:
            return ""
        return f"it lost the GPU when it loaded this model before ({loss.why}); remove {self._folder} to try it again"

    @contextmanager
    def recording_losses(self) -> Iterator[Load]:
        """Count a load, and record a loss of the GPU in this block if a kernel of a known engine caused it."""
        with self._use.load() as load:
            try:
                yield load
            except DeviceLost as lost:
                self._record(lost, load)
                raise

    def _record(self, lost: DeviceLost, load: Load) -> None:
        about = {"model": self._setup.manifest.key, "engine": lost.engine, "reason": str(lost)}
        if not is_kernel_fault(lost):
            _log.warning("GPU lost, not by a kernel: no engine is passed over for it", **about)
        elif not load.alone:
            to_do = "if it happens again, find the engine with retouch build, which loads each model alone"
            _log.warning("GPU lost with other models loaded: no engine is passed over for it", **about, to_do=to_do)
        elif key := self._keys.get(lost.engine):
            self._records.put(key, GpuLoss(why=str(lost)))
            _log.warning("engine lost the GPU", **about)

    def _facts(self) -> Mapping[str, object]:
        try:
            return self._device()
        except DeviceLost:
            raise
        except Exception:  # cuda-python may be missing, and unreadable facts must not keep engines from opening
            return {}


def gpu_facts(open_gpu: Callable[[int], Cuda], number: int) -> Mapping[str, object]:
    """Return the facts of GPU `number`: its name, capability, memory and the CUDA version of its driver."""
    return open_gpu(number).device._asdict()
