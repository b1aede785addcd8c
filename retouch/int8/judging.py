"""Fills the gate's pictures with the FP32 and the INT8 graph, as a request would be filled, and compares both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engines.base import Engine
from engines.manifest import QuantisationFigures
from export.int8.keeping import hole_psnr_db
from retouch.sweep.cases import Case, Pixels
from retouch.sweep.measuring import fill
from service.core.pictures import Picture
from service.imaging.crops import plan_crops
from training.losses.lpips_distance import Lpips

_AMPLIFIED = 8
_MAX_ROWS = 12


class JudgedCase(NamedTuple):
    """One picture of the gate: PSNR in its hole against FP32 in dB, and both LPIPS distances to the truth."""

    psnr_db: float
    lpips: float
    lpips_fp32: float


class Sheet:
    """Rows of a picture with its hole, the FP32 fill, the INT8 fill, and their difference times eight, about grey."""

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def add(self, case: Case, wanted: Pixels, found: Pixels) -> None:
        """Add a row, up to twelve."""
        if len(self._rows) < _MAX_ROWS:
            marked = np.where(case.hole[..., None], np.uint8(255), case.truth)
            difference = (found.astype(np.int16) - wanted) * _AMPLIFIED + 128
            self._rows.append(np.hstack([marked, wanted, found, difference.clip(0, 255).astype(np.uint8)]))

    def picture(self) -> Image.Image:
        """Return the rows one below the other; narrower ones end in white."""
        width = max(row.shape[1] for row in self._rows)
        padded = [np.pad(r, ((0, 4), (0, width - r.shape[1]), (0, 0)), constant_values=255) for r in self._rows]
        return Image.fromarray(np.vstack(padded))


def judge(
    cases: Iterable[Case],
    reference: Engine,
    engine: Engine,
    lpips: Lpips,
    sheet: Sheet,
    notify: Callable[[str], None],
) -> QuantisationFigures:
    """Fill every case with both engines and return the figures that compare the second with the first."""
    rows: list[JudgedCase] = []
    for case in cases:
        notify(f"gate, picture {len(rows) + 1}")
        tiles = plan_crops(case.hole, engine.manifest.size, "auto")
        wanted, found = (
            np.asarray(fill(Picture(case.truth), case.hole, tiles, one).pixels, np.uint8) for one in (reference, engine)
        )
        sheet.add(case, wanted, found)
        psnr = hole_psnr_db(_unit(found), _unit(wanted), np.float32(case.hole[..., None]))
        rows.append(JudgedCase(psnr, lpips.distance(found, case.truth), lpips.distance(wanted, case.truth)))
    return QuantisationFigures(
        pictures=len(rows),
        engine=f"{engine.name} {engine.precision}",
        psnr_db=round(fmean(row.psnr_db for row in rows), 2),
        worst_psnr_db=round(min(row.psnr_db for row in rows), 2),
        lpips=round(fmean(row.lpips for row in rows), 5),
        lpips_fp32=round(fmean(row.lpips_fp32 for row in rows), 5),
    )


def _unit(pixels: Pixels) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = pixels.astype(np.float32) / np.float32(255)
    return unit
