"""A thread with a lane of a GPU, the memory of its pictures, and their queues.

A picture is queued twice, to be cut and to be pasted, and keeps its memory in between. Each of the two is answered
once, whatever happens: by the thread, or by `refuse_all`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from engines.cuda.api import Cuda, DeviceBuffer
from engines.errors import DeviceLost, EngineError, EngineFailed
from service.core.picture_work import PictureWork
from service.devices.pictures.lane import Bytes, CutOrder, PasteOrder, PictureLane, picture_bytes
from service.devices.pictures.memory import PictureMemory

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class QueuedPicture:
    """A picture of a lane, with the arrays that are written and the answers that are owed."""

    work: PictureWork
    tiles: Sequence[Bytes]
    masks: Sequence[Bytes]
    locked: bool = False
    cut: Future[None] = field(default_factory=Future)
    memory: DeviceBuffer | None = None
    fills: Sequence[Bytes] = ()
    result: Bytes | None = None
    pasted: Future[None] | None = None
    ended: Future[None] | None = None

    @property
    def was_cut(self) -> bool:
        """Whether its pixels are in `memory`."""
        answered = self.cut.done() and not self.cut.cancelled() and self.cut.exception() is None
        return answered and self.memory is not None

    @property
    def owed(self) -> Future[None]:
        """The answer that is owed now: to the last thing that was asked."""
        return self.pasted or self.cut


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """Options that the lanes of a pool have in common.

    open_lane: opens a lane on the calling thread, which will use it.
    batch: the largest number of pictures that are decoded together.
    pictures: the largest number of pictures that a lane holds at the same time; more wait.
    clock: seconds.
    nbytes: how much GPU memory the pictures that it holds may need, before it counts as full.
    """

    open_lane: Callable[[Cuda], PictureLane]
    batch: int
    pictures: int
    clock: Callable[[], float]
    nbytes: int = 512 << 20


class LaneThread:
    """One lane's thread. All methods may be called from any thread; one lock guards the queues.

    Args:
        cuda: the GPU.
        options: as for the other lanes.
        on_lost: called with the reason when the lane cannot be used any more.
    """

    def __init__(self, cuda: Cuda, options: LaneOptions, on_lost: Callable[[EngineError], None]) -> None:
        self._cuda, self._options, self._on_lost = cuda, options, on_lost
        self._memory = PictureMemory(cuda, options.pictures)
        """Used by the thread only; others leave what they give back in `_returned`."""
        self._changed = threading.Condition()
        self._to_cut: list[QueuedPicture] = []
        self._to_paste: list[QueuedPicture] = []
        self._working: list[QueuedPicture] = []
        self._returned: list[DeviceBuffer] = []
        self._began_at = 0.0
        self._held = self._held_bytes = 0
        self._refused: EngineError | None = None
        self._leaving = False
        self._thread = threading.Thread(target=self._run, name="pictures", daemon=True)
        self._thread.start()

    @property
    def held(self) -> int:
        """How many pictures it has, waiting or on the GPU."""
        return self._held

    @property
    def full(self) -> bool:
        """Whether it holds as many pictures, or as large ones, as it can."""
        return self._held >= self._options.pictures or self._held_bytes >= self._options.nbytes

    def busy_s(self, now: float) -> float:
        """Seconds for which it has worked on its present batch; 0 without one."""
        with self._changed:
            return now - self._began_at if self._working else 0.0

    def add(self, picture: QueuedPicture) -> None:
        """Queue a picture to be cut."""
        with self._changed:
            self._held += 1
            self._held_bytes += picture_bytes(picture.work.size)
            self._enqueue(picture, self._to_cut)

    def paste(self, picture: QueuedPicture, fills: Sequence[Bytes], result: Bytes) -> Future[None]:
        """Queue a picture to be pasted; refused unless it was cut, as its memory holds another one's pixels then."""
        with self._changed:
            picture.fills, picture.result, picture.pasted = fills, result, Future()
            if picture.was_cut:
                self._enqueue(picture, self._to_paste)
            else:
                _answer(picture.pasted, EngineFailed("the picture is not on the GPU"))
            return picture.pasted

    def end(self, picture: QueuedPicture) -> Future[None]:
        """Give a picture up; answered when no array of it will be written any more."""
        with self._changed:
            if picture.ended is None:
                picture.ended = Future()
                for queue in (self._to_cut, self._to_paste):
                    if picture in queue:
                        queue.remove(picture)
                        picture.owed.cancel()
                if picture not in self._working:
                    self._release(picture, picture.ended)
            return picture.ended

    def refuse_all(self, reason: EngineError) -> None:
        """Answer everything with an error, now and later. What the thread works on stays in use until it returns."""
        with self._changed:
            self._refused = self._refused or reason
            waiting = [*self._to_cut, *self._to_paste, *self._working]
            self._to_cut.clear()
            self._to_paste.clear()
            for picture in waiting:
                _answer(picture.owed, reason)

    def leave(self, timeout_s: float) -> bool:
        """End the thread, and wait for it so long at most; returns whether it has ended."""
        with self._changed:
            self._leaving = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _enqueue(self, picture: QueuedPicture, queue: list[QueuedPicture]) -> None:
        if self._refused is not None:
            _answer(picture.owed, self._refused)
            return
        queue.append(picture)
        self._changed.notify()

    def _release(self, picture: QueuedPicture, ended: Future[None]) -> None:
        if picture.memory is not None:
            self._returned.append(picture.memory)
            picture.memory = None
            self._changed.notify()
        self._held -= 1
        self._held_bytes -= picture_bytes(picture.work.size)
        ended.set_result(None)

    def _run(self) -> None:
        try:
            self._cuda.make_current()
            lane = self._options.open_lane(self._cuda)
            while (batch := self._next_batch()) is not None:
                queue, pictures = batch
                compute = self._cut if queue is self._to_cut else self._paste
                self._compute(lane, pictures, compute)
        except EngineError as error:
            self._on_lost(error)
            return
        except Exception as error:  # a fault of ours: without its thread nobody would answer the lane's pictures
            log.exception("a lane for pictures ended")
            self._on_lost(EngineFailed(f"a lane for pictures ended: {error or type(error).__name__}"))
            return
        with self._changed, suppress(EngineError):  # a lost GPU cannot free its memory and need not
            self._collect_returned()
            lane.close()
            self._memory.close()

    def _collect_returned(self) -> None:
        while self._returned:
            self._memory.give_back(self._returned.pop())

    def _next_batch(self) -> tuple[list[QueuedPicture], list[QueuedPicture]] | None:
        """Wait for pictures of one queue, and take them; None when the thread is to end."""
        with self._changed:
            while not self._leaving:
                self._collect_returned()
                queue = self._to_paste or self._to_cut
                count = self._options.batch
                if queue is self._to_cut:
                    count = min(count, self._memory.vacant)
                taken = queue[:count]
                if taken:
                    del queue[:count]
                    taken = [picture for picture in taken if picture.owed.set_running_or_notify_cancel()]
                    self._working, self._began_at = [*taken], self._options.clock()
                    return queue, taken
                self._changed.wait()
            return None

    def _compute(
        self,
        lane: PictureLane,
        pictures: list[QueuedPicture],
        compute: Callable[[PictureLane, list[QueuedPicture]], None],
    ) -> None:
        """Compute pictures together, or if that fails each alone, because one of them may be to blame."""
        try:
            compute(lane, pictures)
        except DeviceLost as error:
            self._answer_all(pictures, error)
            self._on_lost(error)
        except EngineError as error:
            if len(pictures) == 1:
                self._answer_all(pictures, error)
                return
            for picture in pictures:
                self._compute(lane, [picture], compute)
        except Exception as error:  # a fault of ours: the request is served without the GPU, and the log says so
            log.exception("pictures failed on the GPU")
            self._answer_all(pictures, EngineFailed(f"pictures failed on the GPU: {error}"))
        else:
            self._answer_all(pictures, None)

    def _cut(self, lane: PictureLane, pictures: list[QueuedPicture]) -> None:
        orders = []
        for one in pictures:
            one.memory = one.memory or self._memory.take(picture_bytes(one.work.size))
            orders.append(CutOrder(one.work, one.memory, one.tiles, one.masks, one.locked))
        if orders:
            lane.cut(orders)

    def _paste(self, lane: PictureLane, pictures: list[QueuedPicture]) -> None:
        orders = []
        for one in pictures:
            assert one.memory is not None  # noqa: S101 -- as it was cut
            assert one.result is not None  # noqa: S101 -- given to `paste`
            orders.append(PasteOrder(one.work, one.memory, one.fills, one.result, one.locked))
        if orders:
            lane.paste(orders)

    def _answer_all(self, pictures: list[QueuedPicture], error: EngineError | None) -> None:
        """Answer pictures that no queued work uses any more, and release those that were given up meanwhile."""
        with self._changed:
            for picture in pictures:
                self._working.remove(picture)
                _answer(picture.owed, error)
                if picture.ended is not None:
                    self._release(picture, picture.ended)


def _answer(future: Future[None], error: EngineError | None) -> None:
    """Answer a future that has no answer yet; called with the lane's lock, which its owner does not take to cancel."""
    if future.done():
        return
    with suppress(InvalidStateError):  # cancelled just now
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
