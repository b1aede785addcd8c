"""Engines that compute several batches side by side on one device, each on its share of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from engines.base import Engine, Feed, Outputs


class LaneEngine(Engine):
    """An engine with lanes. One thread uses it; `infer` takes all of the device, and is not called beside a lane."""

    lanes: int
    """How many batches may be on their way at once; 1 where `infer` alone is of use."""

    @abstractmethod
    def begin(self, lane: int, feed: Feed, done: Callable[[], None]) -> None:
        """Start a batch on a lane that is free.

        Args:
            lane: 0 to `lanes` - 1.
            feed: as for `infer`; the lane's until `end`.
            done: called once it has been computed, on a thread of the engine's; not of a batch that failed.

        Raises:
            EngineFailed: this batch failed; the lane is free.
            EngineDead: the engine cannot be used again.
        """

    @abstractmethod
    def ended(self, lane: int) -> bool:
        """Whether `end` would not have to wait; does not wait itself."""

    @abstractmethod
    def end(self, lane: int) -> Outputs:
        """Wait for the batch on a lane, which is free then. Returns as `infer`, but the caller's; raises as `begin`."""
