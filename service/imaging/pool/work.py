"""Where pictures are decoded, prepared, finished and encoded: on codec threads, or on the event loop's own.

A thread that is handed a picture, and hands it back, costs as much as a small picture itself: wake-ups, the
interpreter's lock that changes hands, caches that know other pictures. In a process that has one core for all it does,
as front ends have where there are as many of them as cores, threads gain nothing for that: a picture of 256² took
4.2 ms of CPU time with them and 3.8 without (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from service.core.pictures import ImageFormat
from service.imaging.files.decode_cost import LARGE_PIXELS
from service.imaging.pool.loop_turns import EACH_ROUND, Turns
from service.imaging.pool.parallel_steps import SideBySide, in_turn
from service.imaging.pool.threads import CodecThreads

T = TypeVar("T")
SMALL_PIXELS = 96 * 96
"""Decoding or encoding so small a picture takes less (0.1 ms) than handing it to a thread and back."""
MEDIUM_PIXELS = 512 * 512
"""So long (2 to 4 ms) the loop may be kept from its sockets, where threads would take the same core from it."""
_SLOWER = 4
"""So many times as long as a JPEG takes a PNG or a WebP to encode (docs/benchmarks.md, "Codecs")."""


class CodecWork:
    """Used on the event loop."""

    def __init__(self, threads: CodecThreads) -> None:
        self.threads = threads
        self._to_begin, self._to_finish = Turns(), Turns()  # apart: what is computed does not wait behind uploads

    async def begin(self, work: Callable[[SideBySide], T], effort: int, *, large: bool = False) -> T:
        """Decode and prepare what takes as long as a plain JPEG of so many pixels."""
        if turns := self._turns_here(effort):
            with self.threads.beginning():
                await self._to_begin.take(turns)
                return self.threads.timed(work, in_turn)
        return await self.threads.begin(work, self.threads.side_by_side, large=large)

    async def finish(self, work: Callable[[SideBySide], T], pixels: int, encoder: ImageFormat, *, writes: bool) -> T:
        """Postprocess and encode so many pixels; what writes to a disk, which may wait, goes to a thread."""
        if not writes and (turns := self._turns_here(pixels, 1 if encoder == "jpeg" else _SLOWER)):
            await self._to_finish.take(turns)
            return work(in_turn)
        return await self.threads.finish(work, self.threads.side_by_side, large=pixels >= LARGE_PIXELS)

    def _turns_here(self, pixels: int, slower: int = 1) -> int:
        """How many turns the work takes on the loop; none where it is for a thread."""
        if pixels <= SMALL_PIXELS:
            return 1
        return EACH_ROUND if self.threads.count == 1 and pixels * slower <= MEDIUM_PIXELS else 0
