"""The progress of a start: the model that is being loaded, and its step. One thread writes, any thread may read.

A load ends early only at its steps, so the report also stops loads when the process ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from engines.errors import LoadStopped


class _Loading(NamedTuple):
    """A model that is being loaded; replaced as a whole, so that no reader sees a mixture of two states."""

    model: str
    number: int
    since: float
    step: str = ""


class LoadReport:
    """Progress of loading models, in words.

    Args:
        clock: monotonic seconds.
        log: called with the progress of a load, at most every `log_every_s`.
        log_every_s: seconds between two lines of the log.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        log: Callable[[str], None] = lambda _: None,
        log_every_s: float = 5.0,
    ) -> None:
        self._clock, self._log, self._log_every_s = clock, log, log_every_s
        self._loading: _Loading | None = None
        self._names: list[str] = []
        self._expected = 0
        self._logged_at = 0.0
        self._stopped = False

    def stop(self) -> None:
        """Let no load begin or take another step from now on: they raise LoadStopped."""
        self._stopped = True

    def expect(self, models: int) -> None:
        """Set how many models will be loaded, before the first of them."""
        self._expected = models

    @contextmanager
    def loading(self, model: str) -> Iterator[None]:
        """Report `NAME/VERSION` as the model that is being loaded, until the block ends.

        Raises:
            LoadStopped: loads were stopped.
        """
        self._raise_if_stopped(model)
        name = model.partition("/")[0]
        if name not in self._names:
            self._names.append(name)
        self._loading = _Loading(model, self._names.index(name) + 1, self._clock())
        self._logged_at = self._clock()
        try:
            yield
        finally:
            self._loading = None

    def step(self, text: str) -> None:
        """Set the step of the current load.

        Raises:
            LoadStopped: loads were stopped.
        """
        if (loading := self._loading) is None:
            return
        self._raise_if_stopped(loading.model)
        self._loading = loading._replace(step=text)
        if self._clock() >= self._logged_at + self._log_every_s:
            self._logged_at = self._clock()
            self._log(self.describe())

    def describe(self) -> str:
        """Return the progress: `photos/5 (2 of 4), building its plan with TensorRT 11, 40 %, for 34 s`; or `""`."""
        if (loading := self._loading) is None:
            return ""
        place = f" ({loading.number} of {self._expected})" if loading.number <= self._expected else ""
        seconds = f"for {self._clock() - loading.since:.0f} s"
        return ", ".join(part for part in (f"{loading.model}{place}", loading.step, seconds) if part)

    def _raise_if_stopped(self, model: str) -> None:
        if self._stopped:
            raise LoadStopped(f"{model} is not loaded, because the process ends; start it again")
