"""How far two engines' outputs are apart, and whether that is near enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from engines.base import Array, Feed


@dataclass(frozen=True, slots=True)
class Verdict:
    """The worst of a comparison over several feeds.

    psnr_db: peak 1.0; None when every output was identical.
    inputs: the name of the feed it was measured on.
    """

    psnr_db: float | None
    finite: bool
    inputs: str

    def passes(self, bar_db: float) -> bool:
        """Whether the outputs are finite and at or above the bar."""
        return self.finite and (self.psnr_db is None or self.psnr_db >= bar_db)

    def __str__(self) -> str:
        if not self.finite:
            return f"NaN or inf on {self.inputs} inputs"
        return "identical" if self.psnr_db is None else f"{self.psnr_db:.1f} dB on {self.inputs} inputs"


def psnr_db(reference: Array, output: Array) -> float | None:
    """Peak signal-to-noise ratio for a peak of 1.0; None when both are identical."""
    error = float(np.mean(np.square(reference.astype(np.float64) - output)))
    return None if error == 0 else float(-10 * np.log10(error))


def compare(
    reference: Callable[[Feed], Array], candidate: Callable[[Feed], Array], feeds: Iterable[tuple[str, Feed]]
) -> Verdict:
    """Run both on every feed; the worst counts, and anything that is not finite is worse than any noise."""
    worst = Verdict(None, finite=True, inputs="any")
    for name, feed in feeds:
        wanted = np.array(reference(feed))
        output = candidate(feed)
        if not (np.isfinite(output).all() and np.isfinite(wanted).all()):
            return Verdict(None, finite=False, inputs=name)
        measured = psnr_db(wanted, output)
        if measured is not None and (worst.psnr_db is None or measured < worst.psnr_db):
            worst = Verdict(measured, finite=True, inputs=name)
    return worst
