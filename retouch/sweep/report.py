"""Summaries of a sweep: its rows by cell and in total, and `auto` relative to the better fixed strategy. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from retouch.sweep.measuring import CaseMeasurements

SERVED = "strategy=auto"
FIXED = ("strategy=whole", "strategy=crop")


def means_by_cell(rows: Sequence[CaseMeasurements]) -> list[dict[str, Any]]:
    """Return one entry for each size, coverage and kind, in the rows' order: its count and each candidate's means."""
    found: defaultdict[tuple[int, str, str], list[CaseMeasurements]] = defaultdict(list)
    for row in rows:
        found[row.size, row.band, row.kind].append(row)
    return [
        {"size": size, "coverage": band, "kind": kind, "pictures": len(own), "candidates": _means_by_candidate(own)}
        for (size, band, kind), own in sorted(found.items(), key=lambda item: (item[0][0], item[0][2], item[0][1]))
    ]


def totals_by_size(rows: Sequence[CaseMeasurements]) -> dict[str, Any]:
    """Return each candidate's means by size and overall, and the ratio of `auto`'s LPIPS to the better strategy's.

    over_all: the sum of `auto`'s means of all cells, divided by the sum of the better fixed strategy's means.
    worst_cell: the largest ratio of a single cell.
    """
    sizes = sorted({row.size for row in rows})
    parts = {str(size): [row for row in rows if row.size == size] for size in sizes} | {"all": list(rows)}
    return {
        name: {"pictures": len(own), "candidates": _means_by_candidate(own), **_lpips_ratios(own)}
        for name, own in parts.items()
    }


def _lpips_ratios(rows: Sequence[CaseMeasurements]) -> dict[str, float]:
    by_cell = means_by_cell(rows)
    served = [cell["candidates"][SERVED]["lpips"] for cell in by_cell]
    better = [min(cell["candidates"][candidate]["lpips"] for candidate in FIXED) for cell in by_cell]
    return {
        "over_all": round(sum(served) / sum(better), 4),
        "worst_cell": round(max(mine / best for mine, best in zip(served, better, strict=True)), 4),
    }


def _means_by_candidate(rows: Sequence[CaseMeasurements]) -> dict[str, dict[str, float]]:
    return {
        candidate: {
            "lpips": round(fmean(row.tried[candidate].lpips for row in rows), 5),
            "megapixels": round(fmean(row.tried[candidate].pixels for row in rows) / 1e6, 4),
            "seconds": round(fmean(row.tried[candidate].seconds for row in rows), 4),
        }
        for candidate in rows[0].tried
    }
