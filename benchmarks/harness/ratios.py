"""Ratios of two alternately measured sides, with confidence intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Ratio:
    """The means of both sides, and the geometric mean of after/before with its 95 % interval."""

    before: float
    after: float
    ratio: float
    low: float
    high: float


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Compare at least three pairs; the two values of a pair were measured one right after the other."""
    logs = [math.log(b / a) for a, b in zip(before, after, strict=True)]
    middle = statistics.fmean(logs)
    half = student_t(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    ends = (math.exp(middle - half), math.exp(middle + half))
    return Ratio(statistics.fmean(before), statistics.fmean(after), math.exp(middle), *ends)


def student_t(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t (Cornish-Fisher; within 1 % from 3 degrees of freedom on)."""
    if freedom == 2:
        return 4.303
    z = statistics.NormalDist().inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def print_ratios(title: str, sides: tuple[str, str], ratios: Mapping[str, Ratio]) -> None:
    """Print a row for each figure."""
    table = Table("", title=title, title_justify="left")
    for column in (*sides, "ratio", "95 % interval"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in ratios.items():
        interval = f"{row.low:.3f} to {row.high:.3f}"
        table.add_row(name, f"{row.before:.3f}", f"{row.after:.3f}", f"{row.ratio:.3f}", interval)
    Console(width=120).print(table)
