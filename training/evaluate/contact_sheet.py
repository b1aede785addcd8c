"""The contact sheet: rows of pictures, each with the input, every painter's result and the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw

from training.evaluate.cases import Case, Pixels

_GAP, _TITLE = 4, 16


class Row(NamedTuple):
    """One case and the result of each painter."""

    case: Case
    painted: Mapping[str, Pixels]


def draw_sheet(rows: Sequence[Row], side: int = 256) -> Image.Image:
    """Draw the columns input (holes white), each painter by name, and truth; pictures of at most `side` pixels."""
    titles = ["input", *rows[0].painted, "truth"]
    pictures = [[_with_white_hole(row.case), *row.painted.values(), row.case.truth] for row in rows]
    heights = [_shrunk(line[-1], side).height for line in pictures]
    width = max(_shrunk(line[-1], side).width for line in pictures)
    sheet = Image.new("RGB", (len(titles) * (width + _GAP) - _GAP, _TITLE + sum(heights) + _GAP * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    for column, title in enumerate(titles):
        draw.text((column * (width + _GAP), 2), title, fill="black")
    top = _TITLE
    for line, height in zip(pictures, heights, strict=True):
        for column, pixels in enumerate(line):
            sheet.paste(_shrunk(pixels, side), (column * (width + _GAP), top))
        top += height + _GAP
    return sheet


def write_sheet(rows: Sequence[Row], path: Path, side: int = 256) -> None:
    """Write the sheet as PNG, with pictures of at most `side` pixels; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet(rows, side).save(path, "PNG", optimize=True)


def _with_white_hole(case: Case) -> Pixels:
    return case.source if case.hole is None else np.where(case.hole[..., None], np.uint8(255), case.source)


def _shrunk(pixels: Pixels, side: int) -> Image.Image:
    height, width = pixels.shape[:2]
    scale = min(1.0, side / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small: Any = pixels if scale == 1.0 else cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return Image.fromarray(np.asarray(small, np.uint8))
