"""Service rate: seconds that each request takes, learned from requests that were served. Pure: time is an argument.

Two measures; the slower one counts. The device's: a line fitted to (batch size, device seconds), read at a full batch,
because queued requests are computed in full batches. The whole service's: replies per second while more requests were
in flight than fit a batch, which includes decoding, encoding and HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

_DECAY = 0.95
"""Factor on earlier measurements at each new request: about the last twenty count."""
_WINDOW_S = 0.25
"""Replies are counted over windows of this length, because they come a batch at a time."""
_FRESH_S = 10.0
"""Age at which a measured rate is ignored."""


@dataclass(slots=True)
class _LinearFit:
    """Least squares fit with decaying weights: seconds = fixed + each · size."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add_point(self, size: int, seconds: float) -> None:
        self.n, self.x, self.y = self.n * _DECAY + 1, self.x * _DECAY + size, self.y * _DECAY + seconds
        self.xx, self.xy = self.xx * _DECAY + size * size, self.xy * _DECAY + size * seconds

    def predicted_s(self, size: int) -> float:
        """Seconds that a batch of that size takes; proportional to the size while only one size was seen."""
        if not self.n:
            return 0.0
        mean_x, mean_y = self.x / self.n, self.y / self.n
        proportional, spread = mean_y / mean_x, self.xx / self.n - mean_x * mean_x
        each = proportional
        if spread > 1e-3 * mean_x * mean_x:
            each = min(proportional, max(0.0, (self.xy / self.n - mean_x * mean_y) / spread))
        return mean_y + each * (size - mean_x)


@dataclass(slots=True)
class ServiceRate:
    """The measured seconds for each request. Used on the event loop only."""

    full_batch: int = 8
    """Samples in a full batch."""
    samples: float = 1.0
    """Smoothed number of samples of a request."""
    unloaded_s: float = 0.0
    """Smoothed seconds that a request takes without its time in queues."""
    _device: _LinearFit = field(default_factory=_LinearFit)
    _served_s: float = 0.0
    _served_at: float = 0.0
    _counted: int = 0
    _in_flight_sum: int = 0
    """Sum of the requests in flight over the replies counted in this window."""
    _since: float = 0.0

    @property
    def sample_s(self) -> float:
        """Device seconds for each sample in a full batch; 0 until one has been computed."""
        return self._device.predicted_s(self.full_batch) / self.full_batch

    def request_s(self, now: float, contention: float = 1.0, sample_s: float = 0.0) -> float:
        """Seconds that each queued request adds to the wait; 0 until one has been served.

        Args:
            now: the time.
            contention: requests of all front ends that an engine serves for each request of this one.
            sample_s: `sample_s` as the engine processes have learned it from all front ends; 0 if they have not.
        """
        device_s = contention * self.samples * (sample_s or self.sample_s)
        return max(device_s, self._served_s) if now - self._served_at < _FRESH_S else device_s

    def add_measurement(self, batches: Iterable[tuple[int, float]], unloaded_s: float | None) -> None:
        """Learn from a request that was served.

        Args:
            batches: size and device seconds of the batch of each of its samples.
            unloaded_s: seconds from arrival to answer without queues; None for a large picture, which is not typical.
        """
        count = 0
        for size, infer_s in batches:
            self._device.add_point(size, infer_s)
            count += 1
        weight = 1.0 - _DECAY if self.unloaded_s else 1.0
        self.samples += weight * (count - self.samples)
        if unloaded_s is not None:
            self.unloaded_s += weight * (unloaded_s - self.unloaded_s)

    def count_reply(self, in_flight: int, now: float) -> None:
        """Count a reply while `in_flight` others wait; a window counts only if these filled a batch on average."""
        if not in_flight or not self._since:
            self._since, self._counted, self._in_flight_sum = (now if in_flight else 0.0), 0, 0
            return
        self._counted, self._in_flight_sum = self._counted + 1, self._in_flight_sum + in_flight
        elapsed_s = now - self._since
        if elapsed_s >= _WINDOW_S and self._counted >= self.full_batch:
            if self._in_flight_sum * self.samples >= self.full_batch * self._counted:
                weight = 0.3 if self._served_s and now - self._served_at < _FRESH_S else 1.0
                self._served_s += weight * (elapsed_s / self._counted - self._served_s)
                self._served_at = now
            self._since, self._counted, self._in_flight_sum = now, 0, 0
