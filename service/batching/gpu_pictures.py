"""Pictures that a GPU computes from the file to the finished picture, around the batches of the device worker.

The GPU decodes and cuts, the batcher computes the tiles like any others, and the GPU pastes them. What goes wrong
with a picture there refuses it, and the CPU decodes it instead; a batch that fails fails the request, as any.

What decodes and compares is imported when a lane pool is opened, because a process without pictures needs none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from engines.errors import EngineError
from engines.repository.versions import ServedModel
from service.batching.backend import PictureRefused, SubmitOptions
from service.batching.batcher import Batcher, Entry
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import DeadlineExceeded
from service.core.picture_work import PictureArrays, PictureWork, new_arrays

if TYPE_CHECKING:
    from engines.cuda.api import Cuda
    from service.devices.pictures.lane_pool import LanePool

log = structlog.get_logger(__name__)

_LANES, _BATCH, _PICTURES_OF_A_LANE = 4, 4, 128
"""Pictures keep their places while their tiles wait for the engine, so there are several batches of them."""
STUCK_AFTER_S = 10.0
"""How long a batch of pictures may take on the GPU, before it counts as stuck."""


class LocalPictures:
    """The GPU's pictures of this process. Used on the event loop.

    Args:
        batcher: computes the tiles.
    """

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self.pool: LanePool | None = None
        """The GPU's lanes, once they are open and were found to give what the CPU gives."""

    @property
    def works(self) -> bool:
        """Whether pictures may be handed over."""
        return self.pool is not None and not self.pool.broken

    async def fill(self, work: PictureWork, model: ServedModel, options: SubmitOptions) -> ComputedSample:
        """Compute a picture in arrays of its own; its tile is the finished picture. As `PictureFiller`.

        Nobody else uses the arrays, so this returns although a lane that is stuck may write them yet.
        """
        return await self._fill(new_arrays(work), work, model, options, wait=False)

    async def fill_into(
        self, arrays: PictureArrays, work: PictureWork, model: ServedModel, options: SubmitOptions
    ) -> ComputedSample:
        """Compute a picture in arrays of the caller, which are not written any more when this returns or raises.

        Where a lane is stuck this does not return; `check` has said so then, and an engine process ends.

        Raises:
            PictureRefused: the GPU does not give the picture.
            DeadlineExceeded, InferenceFailed, NotReady, ShuttingDown: as `Batcher.submit`.
        """
        return await self._fill(arrays, work, model, options, wait=True)

    async def _fill(
        self, arrays: PictureArrays, work: PictureWork, model: ServedModel, options: SubmitOptions, *, wait: bool
    ) -> ComputedSample:
        if self.pool is None:
            raise PictureRefused("pictures are not decoded on the GPU yet")
        if self.pool.full:  # the lanes know no priorities: an urgent picture would wait for all that came before it
            raise PictureRefused("the GPU holds as many pictures as it can")
        if not model.retain():  # its users may leave meanwhile, and the batcher answers nothing for a closed engine
            raise PictureRefused("the model is not loaded any more")
        picture = self.pool.begin(work, arrays.tiles, arrays.masks, locked=arrays.locked)
        entries: list[Entry] = []
        try:
            await _answer_by(options.deadline, picture.cut)
            for number, crop in enumerate(work.crops):
                inputs = {"image": arrays.tiles[number], "mask": arrays.masks[number]}
                sample = Sample(crop.tile, inputs, 1, arrays.fills[number], arrays.locked)
                on_begun = options.on_begun if number == 0 else None
                entries.append(
                    self._batcher.enqueue(
                        sample, model, options.deadline, on_begun, options.flow, traced=options.traced
                    )
                )
            computed = [await asyncio.shield(entry.reply) for entry in entries]
            fills = [np.ascontiguousarray(done.tile) for done in computed]
            await _answer_of(picture.paste(fills, arrays.result))
        finally:
            try:
                for entry in entries:
                    if self._batcher.withdraw(entry) or not wait:
                        entry.reply.cancel()
                unused = picture.end()
                if wait:
                    written = [] if unused.done() else [asyncio.wrap_future(unused)]
                    await _until_done([*written, *(entry.reply for entry in entries)])
            finally:
                model.release()
        return ComputedSample(
            arrays.result,
            max(done.batch_size for done in computed),
            max(done.queue_s for done in computed),
            max(done.infer_s for done in computed),
            max(done.device_s for done in computed),
            computed[0].batch,
        )

    async def open(self, open_lane_pool: OpenLanePool) -> None:
        """Open the GPU's lanes, compare them with the CPU's code, and use them if they give the same.

        If this is cancelled it waits for the thread, as `asyncio.run` would, because the lanes are to be closed.
        """
        trial = asyncio.ensure_future(asyncio.to_thread(_try_lane_pool, open_lane_pool))
        try:
            pool, reason = await asyncio.shield(trial)
        except asyncio.CancelledError:
            pool, _ = await trial
            if pool is not None:
                await asyncio.to_thread(pool.close)
            raise
        if reason:
            log.warning("pictures are decoded by the CPU", reason=reason)
            return
        log.info("pictures are decoded on the GPU")
        self.pool = pool

    def check(self) -> bool:
        """Refuse pictures from now on if a lane is stuck; returns whether one is."""
        if self.pool is not None:
            self.pool.check(STUCK_AFTER_S)
        return self.pool is not None and self.pool.stuck

    def close(self) -> None:
        """Close the lanes, if they were opened."""
        if self.pool is not None:
            self.pool.close()


OpenLanePool = Callable[[], "LanePool"]
"""Opens the lanes of this process's GPU; blocking. Raises EngineError: there is no decoder, or a library is missing."""


def open_gpu_lane_pool() -> LanePool:
    """Open the lanes of this process's GPU, as `OpenLanePool`; compiles the kernels, which takes a second."""
    from engines.cuda.api import open_cuda  # noqa: PLC0415 -- see the module's text
    from engines.cuda.quick_calls import open_quick_calls  # noqa: PLC0415
    from service.devices.pictures.kernels import NvrtcKernels  # noqa: PLC0415
    from service.devices.pictures.lane_pool import LanePool  # noqa: PLC0415
    from service.devices.pictures.lane_thread import LaneOptions  # noqa: PLC0415
    from service.devices.pictures.nvjpeg import open_hardware_lane, open_nvjpeg  # noqa: PLC0415

    cuda, quick_calls = open_cuda(), open_quick_calls()
    with ExitStack() as stack:
        nvjpeg = stack.enter_context(closing(open_nvjpeg()))
        kernels = stack.enter_context(closing(NvrtcKernels(cuda, quick_calls)))
        open_lane = partial(open_hardware_lane, nvjpeg=nvjpeg, kernels=kernels, quick_calls=quick_calls)
        options = LaneOptions(open_lane, _BATCH, _PICTURES_OF_A_LANE, time.monotonic)
        return LanePool(cuda, _LANES, options, partial(_close_shared, cuda, stack.pop_all()))


def _close_shared(cuda: Cuda, shared: ExitStack) -> None:
    with suppress(EngineError):  # a lost GPU cannot free anything and need not
        cuda.make_current()
        shared.close()


def _try_lane_pool(open_lane_pool: OpenLanePool) -> tuple[LanePool | None, str]:
    """Open a lane pool and compare it with the CPU's code; returns it, or None and why it cannot be used. Blocking."""
    from service.batching.picture_check import difference_from_cpu  # noqa: PLC0415 -- see the module's text

    pool = None
    try:
        pool = open_lane_pool()
        reason = difference_from_cpu(pool)
    except EngineError as error:
        reason = str(error) or type(error).__name__
    except Exception as error:  # a library that is not what it should be must not keep the CPU from serving
        log.exception("pictures on the GPU could not be tried")
        reason = str(error) or type(error).__name__
    if reason and pool is not None:
        pool.close()
    return (None, reason) if reason else (pool, "")


async def _answer_by(deadline: float, question: Future[None]) -> None:
    """Wait until a deadline, after which the picture is given up; if it still waits, it is never decoded."""
    try:
        await asyncio.wait_for(_answer_of(question), deadline - time.monotonic())
    except asyncio.TimeoutError:
        raise DeadlineExceeded("the deadline passed before the GPU had decoded the picture; allow more") from None


async def _answer_of(question: Future[None]) -> None:
    try:
        await asyncio.wrap_future(question)
    except EngineError as error:
        raise PictureRefused(str(error)) from error


async def _until_done(answers: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until all have an answer, whichever it is; if cancelled meanwhile, wait all the same, then be cancelled."""
    cancelled = False
    while waiting := [one for one in answers if not one.done()]:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(waiting)
            continue
        cancelled = True
    for one in answers:
        if not one.cancelled():
            one.exception()  # it is looked at, so nobody logs it
    if cancelled:
        raise asyncio.CancelledError
