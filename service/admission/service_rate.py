"""How fast requests are served, learned from those that were. Pure: time comes in.

Two measures, and the slower counts. The device's: a line through (batch size, share of the device's seconds), read at a
full batch, because whoever waits in a queue is computed in one, where the device takes full ones. The whole service's:
replies a second while more waited than one batch takes, which knows of decoding, encoding and HTTP, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

_KEPT = 0.95
"""Weight of all that was learned before against one more request: about the last twenty count."""
_WINDOW_S = 0.25
"""Replies are counted over that long: they come a batch at a time."""
_FRESH_S = 10.0
"""A rate that was measured longer ago says nothing any more."""


@dataclass(slots=True)
class _Line:
    """Least squares with a fading memory: seconds = fixed + each · size."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def learn(self, size: int, seconds: float) -> None:
        self.n, self.x, self.y = self.n * _KEPT + 1, self.x * _KEPT + size, self.y * _KEPT + seconds
        self.xx, self.xy = self.xx * _KEPT + size * size, self.xy * _KEPT + size * seconds

    def at(self, size: int) -> float:
        """Seconds of a batch of that size; in proportion to size as long as only one size was seen."""
        if not self.n:
            return 0.0
        mean_x, mean_y = self.x / self.n, self.y / self.n
        proportional, spread = mean_y / mean_x, self.xx / self.n - mean_x * mean_x
        each = proportional
        if spread > 1e-3 * mean_x * mean_x:
            each = min(proportional, max(0.0, (self.xy / self.n - mean_x * mean_y) / spread))
        return mean_y + each * (size - mean_x)


@dataclass(slots=True)
class Pace:
    """What one more request costs. Used on the event loop only."""

    full_batch: int = 8
    """Samples in a full batch."""
    samples: float = 1.0
    """Smoothed number of samples of a request."""
    own_s: float = 0.0
    """Smoothed seconds that a request needs when it waits for nobody."""
    _device: _Line = field(default_factory=_Line)
    _served_s: float = 0.0
    _served_at: float = 0.0
    _counted: int = 0
    _inside: int = 0
    """Sum over those counted of how many others were there."""
    _since: float = 0.0

    def request_s(self, now: float, crowd: float = 1.0) -> float:
        """Seconds that each request in the queue adds to the wait; 0 until one has been served.

        Args:
            now: the time.
            crowd: how many requests the device serves for each of these.
        """
        device_s = crowd * self.samples * self._device.at(self.full_batch) / self.full_batch
        return max(device_s, self._served_s) if now - self._served_at < _FRESH_S else device_s

    def learn(self, batches: Iterable[tuple[int, float]], own_s: float | None) -> None:
        """A request was served.

        Args:
            batches: size and seconds of the batch of each of its samples.
            own_s: seconds from its arrival to its answer, less those in a queue; None of a large picture, whose time
                says nothing about that of others.
        """
        count = 0
        for size, infer_s in batches:
            self._device.learn(size, infer_s)
            count += 1
        weight = 1.0 - _KEPT if self.own_s else 1.0
        self.samples += weight * (count - self.samples)
        if own_s is not None:
            self.own_s += weight * (own_s - self.own_s)

    def left(self, inside: int, now: float) -> None:
        """A request was answered, with that many others inside: on average they must fill a batch to be a queue."""
        if not inside or not self._since:
            self._since, self._counted, self._inside = (now if inside else 0.0), 0, 0
            return
        self._counted, self._inside = self._counted + 1, self._inside + inside
        elapsed_s = now - self._since
        if elapsed_s >= _WINDOW_S and self._counted >= self.full_batch:
            if self._inside * self.samples >= self.full_batch * self._counted:
                weight = 0.3 if self._served_s and now - self._served_at < _FRESH_S else 1.0
                self._served_s += weight * (elapsed_s / self._counted - self._served_s)
                self._served_at = now
            self._since, self._counted, self._inside = now, 0, 0
