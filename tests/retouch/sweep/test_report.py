"""The report: for each cell, the distance of `auto` from the better of the fixed strategies."""

from __future__ import annotations

import pytest

from retouch.sweep.measuring import CandidateMeasurement, CaseMeasurements
from retouch.sweep.report import means_by_cell, totals_by_size


def row(size: int, kind: str, whole: float, crop: float, auto: float) -> CaseMeasurements:
    figures = {"strategy=whole": whole, "strategy=crop": crop, "strategy=auto": auto}
    tried = {candidate: CandidateMeasurement(lpips, 10**6, 1, 0.5) for candidate, lpips in figures.items()}
    return CaseMeasurements("a", size, "5-20 %", kind, size, 20, 0.1, tried)


ROWS = [row(256, "boxes", 0.2, 0.4, 0.3), row(256, "boxes", 0.4, 0.2, 0.3), row(512, "blobs", 0.1, 0.2, 0.11)]


def test_a_cell_has_the_means_of_its_rows():
    first, second = means_by_cell(ROWS)
    assert (first["size"], first["kind"], first["pictures"]) == (256, "boxes", 2)
    assert first["candidates"]["strategy=auto"] == {"lpips": 0.3, "megapixels": 1.0, "seconds": 0.5}
    assert (second["size"], second["kind"], second["pictures"]) == (512, "blobs", 1)


def test_totals_compare_with_the_better_strategy_of_each_cell():
    found = totals_by_size(ROWS)
    assert found["256"]["over_all"] == pytest.approx(1.0)
    assert found["512"]["worst_cell"] == pytest.approx(1.1)
    assert found["all"]["over_all"] == pytest.approx((0.3 + 0.11) / (0.3 + 0.1), abs=1e-4)
    assert found["all"]["pictures"] == 3
