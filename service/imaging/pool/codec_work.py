"""The choice of the thread that decodes, prepares, finishes and encodes pictures: a codec thread or the event loop's.

Handing a picture to a thread and back costs as much as a small picture itself: wake-ups, the GIL, cold
caches. In a process with a single core, such as a front end when there is one for each core, threads gain nothing: a
picture of 256² took 4.2 ms of CPU time with them and 3.8 without (ADR 19).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TypeVar

import cv2

from service.core.pictures import ImageFormat
from service.imaging.files.decode_cost import LARGE_PIXELS
from service.imaging.pool.loop_shares import SHARES_OF_AN_ITERATION, LoopShares
from service.imaging.pool.parallel_steps import HelperThreads, StepRunner, run_sequentially
from service.imaging.pool.thread_pool import CodecPool

T = TypeVar("T")
SMALL_PIXELS = 96 * 96
"""Size up to which decoding or encoding takes less (0.1 ms) than handing the picture to a thread and back."""
MEDIUM_PIXELS = 512 * 512
"""Size up to which work (2 to 4 ms) may block the event loop, if threads would only compete for the same core."""
HELPED_PIXELS = 320 * 320
"""Least size at which helpers pay on the event loop: handing over the mask of 256² takes as long as it saves."""
_MAX_HELPERS = 3
"""Most threads that help a process with one codec thread: a JPEG of 512² is encoded in four strips."""
_SLOWER = 4
"""Ratio of the encoding times of PNG or WebP to that of JPEG (docs/measurements/cpu.md, "Codecs")."""
_END = object()
_SMOOTHING = 0.1
"""Weight of the newest duration in the running mean, which covers about the last twenty."""


def no_further_steps(_: object) -> Iterable[object]:
    """Return no steps: nothing follows the work of the call."""
    return ()


class CodecWork:
    """One thread pool to decode and prepare, one to finish and encode: a computed request never waits behind uploads.

    Used on the event loop; `close` waits for running work. OpenCV's own threads are turned off in the whole process:
    all cores already work on pictures, and OpenCV's pool would only compete with them.

    Args:
        threads: number of threads in each pool.
        spare_cores: returns how many cores a request may use now beside its own, if there is one thread.
    """

    def __init__(self, threads: int, spare_cores: Callable[[], int] = lambda: 0) -> None:
        cv2.setNumThreads(1)
        self._threads = threads
        self._decode_pool, self._encode_pool = CodecPool(threads, "decode"), CodecPool(threads, "encode")
        self._decode_shares, self._encode_shares = LoopShares(), LoopShares()  # separate, like the pools
        self._spare_cores = spare_cores
        self._helpers = HelperThreads(threads - 1 if threads > 1 else _MAX_HELPERS, self._free_threads)
        self._decoding = self._encoding = 0
        """Number of requests that wait for a thread or the loop, or run; without large ones to decode."""
        self._large = 0
        """Number of large pictures to decode, counted apart as they do not predict how long others take."""
        self._mean_s = self._mean_after_s = 0.0
        """Running means in seconds of decoding and preparing, and of the steps after that, without large pictures."""
        self._continuing: set[object] = set()
        """An item for each request whose steps after decoding run."""

    @property
    def predicted_wait_s(self) -> float:
        """The predicted wait until an upload that is not large would be decoded; for large ones see `MemoryShares`."""
        return self._decoding * (self._mean_s + self._mean_after_s) / self._decode_pool.threads_for_small

    async def run_decoding(
        self,
        work: Callable[[StepRunner], T],
        effort: int,
        then: Callable[[T], Iterable[object]] = no_further_steps,
        *,
        large: bool = False,
    ) -> T:
        """Decode and prepare. Cancelling the call withdraws work that no thread has begun.

        Args:
            work: gets a function that runs several steps in parallel.
            effort: the cost of `work`, in pixels of a plain JPEG.
            then: called with the result on the thread of `work`, once the caller could pass the result on. It returns
                steps that run as they are iterated; on the event loop, one in each iteration. Errors are ignored.
            large: whether one of the request's pictures is large.
        """
        if large and not self._event_loop_shares(effort):
            self._large += 1
            try:
                return await self._decode_pool.run(work, self._helpers.run_with_helpers, large=True, then=then)
            finally:
                self._large -= 1
        self._decoding += 1
        try:
            if shares := self._event_loop_shares(effort):
                await self._decode_shares.take(shares)
                result = self._run_timed(work, self._steps_on_loop(effort))
                _run_later(self._steps_after(then, result))
                return result
            steps = partial(self._steps_after, then)
            return await self._decode_pool.run(self._run_timed, work, self._helpers.run_with_helpers, then=steps)
        finally:
            self._decoding -= 1

    async def run_encoding(
        self, work: Callable[[StepRunner], T], pixels: int, encoder: ImageFormat, *, writes: bool, slow: bool = False
    ) -> T:
        """Postprocess and encode a picture.

        Args:
            work: gets a function that runs several steps in parallel.
            pixels: number of pixels of the picture.
            encoder: format of the file.
            writes: whether `work` writes to a disk; it then runs on a thread, because that may block.
            slow: whether `work` takes long, as copying texture does; it then runs on a thread, among large pictures.
        """
        if not writes and not slow and (shares := self._event_loop_shares(pixels, 1 if encoder == "jpeg" else _SLOWER)):
            await self._encode_shares.take(shares)
            return work(self._steps_on_loop(pixels))
        self._encoding += 1
        try:
            return await self._encode_pool.run(
                work, self._helpers.run_with_helpers, large=slow or pixels >= LARGE_PIXELS
            )
        finally:
            self._encoding -= 1

    def close(self) -> None:
        """Wait for running work; drop queued work."""
        for pool in (self._decode_pool, self._encode_pool):
            pool.close()
        self._helpers.close()

    def _event_loop_shares(self, pixels: int, slower: int = 1) -> int:
        """Return the shares of an iteration that the work takes on the event loop; 0 if it must run on a thread."""
        if pixels <= SMALL_PIXELS:
            return 1
        return SHARES_OF_AN_ITERATION if self._threads == 1 and pixels * slower <= MEDIUM_PIXELS else 0

    def _steps_on_loop(self, pixels: int) -> StepRunner:
        return self._helpers.run_with_helpers if pixels >= HELPED_PIXELS else run_sequentially

    def _run_timed(self, work: Callable[[StepRunner], T], run_steps: StepRunner) -> T:
        started = perf_counter()
        try:
            return work(run_steps)
        finally:
            took_s = perf_counter() - started
            weight = _SMOOTHING if self._mean_s else 1.0
            self._mean_s += weight * (took_s - self._mean_s)

    def _steps_after(self, then: Callable[[T], Iterable[object]], result: T) -> Iterator[None]:
        """Run the steps after decoding as it is iterated, and count their time."""
        self._continuing.add(token := object())
        took_s = 0.0
        try:
            steps, left = iter(then(result)), True
            while left:
                started = perf_counter()
                left = next(steps, _END) is not _END
                took_s += perf_counter() - started
                yield
        finally:
            self._continuing.discard(token)
            self._mean_after_s += _SMOOTHING * (took_s - self._mean_after_s)

    def _free_threads(self) -> int:
        """Return how many threads may help another: idle ones, or with a single thread, one for each spare core."""
        if self._threads == 1:
            return min(_MAX_HELPERS, self._spare_cores())
        return self._threads - self._decoding - self._encoding - self._large - len(self._continuing)


def _run_later(steps: Iterator[object]) -> None:
    """Run steps in iterations of the event loop after the next one, in which the caller's messages are sent."""
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, _run_step, steps)


def _run_step(steps: Iterator[object]) -> None:
    with suppress(Exception):  # StopIteration, too
        next(steps)
        asyncio.get_running_loop().call_soon(_run_step, steps)
