"""Compares the outputs of two engines: PSNR, grey levels in the holes, and whether every value is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from engines.base import Array, Feed


@dataclass(frozen=True, slots=True)
class Verdict:
    """The worst result of a comparison over several feeds.

    psnr_db: the lowest PSNR, for a peak of 1.0; None if every output was identical.
    inputs: the name of the feed with the lowest PSNR.
    levels: the largest difference of a value that users see (`shown_levels`), over all feeds.
    """

    psnr_db: float | None
    finite: bool
    inputs: str
    levels: float = 0.0

    def passes(self, bar_db: float) -> bool:
        """Return whether the outputs are finite and at or above the bar."""
        return self.finite and (self.psnr_db is None or self.psnr_db >= bar_db)

    def __str__(self) -> str:
        if not self.finite:
            return f"NaN or inf on {self.inputs} inputs"
        return "identical" if self.psnr_db is None else f"{self.psnr_db:.1f} dB on {self.inputs} inputs"


def psnr_db(reference: Array, output: Array) -> float | None:
    """Return the peak signal-to-noise ratio in dB for a peak of 1.0; None if both are identical."""
    error = float(np.mean(np.square(reference.astype(np.float64) - output)))
    return None if error == 0 else float(-10 * np.log10(error))


def shown_levels(feed: Feed, reference: Array, output: Array) -> float:
    """Return the largest difference of the clamped outputs in grey levels of 255, in the holes if there is a mask."""
    difference = 255 * np.abs(np.clip(reference, 0, 1) - np.clip(output, 0, 1))
    mask = feed.get("mask")
    if mask is not None:
        difference *= mask if mask.ndim == difference.ndim else mask[:, None]  # with an axis of samples
    return float(difference.max(initial=0))


def compare(
    reference: Callable[[Feed], Array], candidate: Callable[[Feed], Array], feeds: Iterable[tuple[str, Feed]]
) -> Verdict:
    """Run both on every feed and return the worst result; an output with NaN or inf is worse than any PSNR."""
    worst, levels = Verdict(None, finite=True, inputs="any"), 0.0
    for name, feed in feeds:
        wanted = np.array(reference(feed))
        output = candidate(feed)
        if not (np.isfinite(output).all() and np.isfinite(wanted).all()):
            return Verdict(None, finite=False, inputs=name)
        levels = max(levels, shown_levels(feed, wanted, output))
        measured = psnr_db(wanted, output)
        if measured is not None and (worst.psnr_db is None or measured < worst.psnr_db):
            worst = Verdict(measured, finite=True, inputs=name)
    return replace(worst, levels=levels)
