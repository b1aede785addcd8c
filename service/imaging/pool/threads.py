"""The threads that decode, prepare, finish and encode, and how long their queue is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

import cv2

from service.imaging.pool.parallel_steps import Helpers
from service.imaging.pool.thread_pool import CodecPool

T = TypeVar("T")
_SMOOTHING = 0.1
"""Weight of the newest piece of work in the mean: about the last twenty count."""


class CodecThreads:
    """A pool for what is begun and one for what is finished: a computed request never waits behind new uploads.

    Used on the event loop; `close` waits for what runs. OpenCV's own threads are turned off in the whole process: as
    many pictures are worked on as there are cores, and its pool would only spin beside them.
    """

    def __init__(self, threads: int) -> None:
        cv2.setNumThreads(1)
        self._threads = threads
        self._begin = CodecPool(threads, "decode")
        self._finish = CodecPool(threads, "encode")
        self._helpers = Helpers(threads - 1)
        self._beginning = 0
        self._finishing = 0
        self._large = 0
        """Large pictures that are begun, which say nothing about how long others take."""
        self._mean_s = 0.0

    @property
    def count(self) -> int:
        """Of threads in each pool."""
        return self._threads

    @property
    def predicted_wait_s(self) -> float:
        """How long an upload that comes now would wait to be decoded, if it is not large; for those see `Shares`."""
        return self._beginning * self._mean_s / self._begin.for_small

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Work that waits to be begun, or is, though not by a thread of the pool: it counts for the prediction."""
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1

    def timed(self, function: Callable[..., T], *args: object) -> T:
        """Do the work, and learn how long it takes."""
        started = perf_counter()
        try:
            return function(*args)
        finally:
            took_s = perf_counter() - started
            weight = _SMOOTHING if self._mean_s else 1.0
            self._mean_s += weight * (took_s - self._mean_s)

    async def begin(self, function: Callable[..., T], *args: object, large: bool = False) -> T:
        """Decode and prepare. A caller that leaves withdraws work that no thread has taken up."""
        if large:
            with self._with_large():
                return await self._begin.run(function, *args, large=True)
        with self.beginning():
            return await self._begin.run(self.timed, function, *args)

    async def finish(self, function: Callable[..., T], *args: object, large: bool = False) -> T:
        """Postprocess and encode."""
        self._finishing += 1
        try:
            return await self._finish.run(function, *args, large=large)
        finally:
            self._finishing -= 1

    def side_by_side(self, pieces: Sequence[Callable[[], T]]) -> list[T]:
        """Pieces of the work that the calling codec thread does, on it and on as many more as have nothing to do.

        Raises what the first of the pieces raises that do.
        """
        return self._helpers.share(pieces, self._threads - self._beginning - self._finishing - self._large)

    def close(self) -> None:
        for pool in (self._begin, self._finish):
            pool.close()
        self._helpers.close()

    @contextmanager
    def _with_large(self) -> Iterator[None]:
        self._large += 1
        try:
            yield
        finally:
            self._large -= 1
