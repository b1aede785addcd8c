"""The interface of engines with lanes: independent streams that compute several batches at once on one device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from engines.base import Engine, Feed, Outputs


class LaneEngine(Engine):
    """An engine whose lanes compute batches independently of each other.

    One thread uses it. `infer` uses the whole device and is never called while a lane computes.
    """

    lanes: int
    """The number of batches that can be computed at once; 1 if there is only one lane."""

    @abstractmethod
    def begin(self, lane: int, feed: Feed, done: Callable[[], None]) -> None:
        """Start a batch on a lane that is free.

        Args:
            lane: 0 to `lanes` - 1.
            feed: as for `infer`; it must not change before `end` has returned.
            done: called on one of the engine's threads when the batch is computed; not called for a batch that failed.

        Raises:
            EngineFailed: this batch failed; the lane is free.
            EngineDead: the engine cannot be used again.
        """

    @abstractmethod
    def ended(self, lane: int) -> bool:
        """Return whether the batch is finished, so that `end` would not wait."""

    @abstractmethod
    def end(self, lane: int) -> Outputs:
        """Wait for the batch on a lane and free the lane.

        Returns:
            The outputs, as from `infer`, but the caller owns the arrays.

        Raises:
            EngineFailed, EngineDead: as for `begin`.
        """
