"""Contact sheets of the texture stage: whole pictures, enlarged holes, and the cases with the worst change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from training.evaluate.cases import Case, Pixels
from training.evaluate.contact_sheet import Row, write_sheet
from training.evaluate.painters import Painter

_CUT_SIDE, _ENLARGED_SIDE = 128, 384
"""Sides in pixels of the part of a picture that is enlarged, before and after."""


def write_sheets(rows: Sequence[Row], worst: Sequence[Case], painters: Sequence[Painter], folder: Path) -> None:
    """Write whole.png, enlarged.png (holes of the same rows) and worst.png (holes of `worst`) into the folder."""
    write_sheet(rows, folder / "whole.png", 512)
    write_sheet([_enlarged(row) for row in rows], folder / "enlarged.png", _ENLARGED_SIDE)
    bad = [Row(case, {painter.label: painter.paint(case) for painter in painters}) for case in worst]
    write_sheet([_enlarged(row) for row in bad], folder / "worst.png", _ENLARGED_SIDE)


def _enlarged(row: Row) -> Row:
    """Cut out and enlarge the surroundings of the hole's innermost pixel."""
    case = row.case
    hole = np.ones(case.truth.shape[:2], np.bool_) if case.hole is None else case.hole
    height, width = hole.shape
    depth = cv2.distanceTransform(hole.astype(np.uint8), cv2.DIST_L2, 5)
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    top = int(np.clip(y - _CUT_SIDE // 2, 0, max(0, height - _CUT_SIDE)))
    left = int(np.clip(x - _CUT_SIDE // 2, 0, max(0, width - _CUT_SIDE)))

    def cut(pixels: Pixels) -> Pixels:
        part = pixels[top : top + _CUT_SIDE, left : left + _CUT_SIDE]
        return np.asarray(cv2.resize(part, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC), np.uint8)

    marked = cv2.resize(hole[top : top + _CUT_SIDE, left : left + _CUT_SIDE].astype(np.uint8), None, fx=3, fy=3)
    part = case._replace(source=cut(case.source), truth=cut(case.truth), hole=marked > 0)
    return Row(part, {name: cut(pixels) for name, pixels in row.painted.items()})
