"""The threads that decode, prepare, finish and encode, and how long their queue is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

import cv2

from service.side_by_side import Helpers

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
        self._begin = ThreadPoolExecutor(threads, "decode")
        self._finish = ThreadPoolExecutor(threads, "encode")
        self._helpers = Helpers(threads - 1)
        self._beginning = 0
        self._finishing = 0
        self._mean_s = 0.0

    @property
    def count(self) -> int:
        """Of threads in each pool."""
        return self._threads

    @property
    def predicted_wait_s(self) -> float:
        """How long an upload that comes now would wait to be decoded."""
        return self._beginning * self._mean_s / self._threads

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

    async def begin(self, function: Callable[..., T], *args: object) -> T:
        """Decode and prepare. A caller that leaves withdraws work that no thread has taken up."""
        self._beginning += 1
        work = asyncio.get_running_loop().run_in_executor(self._begin, self.timed, function, *args)
        work.add_done_callback(lambda _: self._ended())
        return await work

    async def finish(self, function: Callable[..., T], *args: object) -> T:
        """Postprocess and encode."""
        self._finishing += 1
        work = asyncio.get_running_loop().run_in_executor(self._finish, function, *args)
        work.add_done_callback(lambda _: self._finished())
        return await work

    def side_by_side(self, pieces: Sequence[Callable[[], T]]) -> list[T]:
        """Pieces of the work that the calling codec thread does, on it and on as many more as have nothing to do.

        Raises what the first of the pieces raises that do.
        """
        return self._helpers.share(pieces, self._threads - self._beginning - self._finishing)

    def close(self) -> None:
        for pool in (self._begin, self._finish):
            pool.shutdown(cancel_futures=True)
        self._helpers.close()

    def _ended(self) -> None:
        self._beginning -= 1

    def _finished(self) -> None:
        self._finishing -= 1
