"""The lanes of a GPU for pictures, and a picture in one of them as its owner sees it.

After the GPU is lost, or a lane is stuck, everything is refused (`broken` says why), and the CPU serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from engines.cuda.api import Cuda
from engines.errors import EngineError, EngineFailed
from service.core.picture_work import PictureWork
from service.devices.pictures.lane import Bytes
from service.devices.pictures.lane_thread import LaneOptions, LaneThread, QueuedPicture

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PictureInProgress:
    """A picture that was handed over. Its owner calls `end` in any case, and then nothing else."""

    thread: LaneThread
    queued: QueuedPicture

    @property
    def cut(self) -> Future[None]:
        """Answered when the tiles and their masks are written; with an EngineError if they are not."""
        return self.queued.cut

    def paste(self, fills: Sequence[Bytes], result: Bytes) -> Future[None]:
        """Paste the fills, one for each crop, after `cut` was answered; `result` is written, H×W×3.

        Answered when it is written; with an EngineError if it is not.
        """
        return self.thread.paste(self.queued, fills, result)

    def end(self) -> Future[None]:
        """Give the picture up, finished or not; answered when no array of it will be written any more.

        It is never answered if its lane is stuck: the memory of the arrays must not be used again then.
        """
        return self.thread.end(self.queued)


class LanePool:
    """Lanes of one GPU that decode pictures, cut tiles and paste fills. Methods may be called from any thread.

    Args:
        cuda: the GPU.
        lanes: how many threads with a lane each.
        options: what the lanes have in common.
        close_shared: frees what the lanes share, after they are closed.
    """

    def __init__(
        self, cuda: Cuda, lanes: int, options: LaneOptions, close_shared: Callable[[], None] = lambda: None
    ) -> None:
        self.broken = ""
        """Why pictures are refused; empty while they are not."""
        self.stuck = False
        """Whether a lane was found to work on one batch for too long."""
        self._clock = options.clock
        self._close_shared = close_shared
        self._closed = False
        self._threads: list[LaneThread] = []
        for _ in range(lanes):
            self._threads.append(LaneThread(cuda, options, self.stop))
        if self.broken:  # a lane did not open while the others were started
            self.stop(EngineFailed(self.broken))

    @property
    def lanes(self) -> int:
        """The number of lanes; as many pictures that are handed over to an idle pool go to one lane each."""
        return len(self._threads)

    @property
    def full(self) -> bool:
        """Whether every lane holds all that it can; more pictures would wait, in the order of their arrival."""
        return all(thread.full for thread in self._threads)

    def begin(
        self, work: PictureWork, tiles: Sequence[Bytes], masks: Sequence[Bytes], *, locked: bool = False
    ) -> PictureInProgress:
        """Hand a picture over; `tiles` (H×W×3) and `masks` (H×W) are written, one of each for every crop.

        `locked`: whether these, what `work` has, and what will be pasted is in page-locked memory.
        """
        thread = min(self._threads, key=lambda one: (one.full, one.held))
        picture = QueuedPicture(work, tiles, masks, locked)
        thread.add(picture)
        return PictureInProgress(thread, picture)

    def check(self, limit_s: float) -> None:
        """Refuse everything from now on if a lane has worked on one batch for longer than `limit_s`.

        A pool that is broken is looked at too: its other lanes may hang.
        """
        now = self._clock()
        if not self.stuck and any(thread.busy_s(now) > limit_s for thread in self._threads):
            self.stuck = True
            self.stop(EngineFailed(f"the GPU has not decoded a batch of pictures for {limit_s:g} s"))

    def stop(self, reason: EngineError) -> None:
        """Refuse everything from now on, and answer what is not answered yet."""
        if not self.broken:
            log.error("pictures are not decoded on the GPU any more", reason=str(reason))
        self.broken = self.broken or str(reason)
        for thread in self._threads:
            thread.refuse_all(reason)

    def close(self, timeout_s: float = 5.0) -> None:
        """Answer what waits, and end the threads; one that is stuck is left behind."""
        self.broken = self.broken or "the server is shutting down"
        for thread in self._threads:
            thread.refuse_all(EngineFailed(self.broken))
        left = [thread.leave(timeout_s) for thread in self._threads]
        if all(left) and not self._closed:
            self._closed = True
            self._close_shared()
