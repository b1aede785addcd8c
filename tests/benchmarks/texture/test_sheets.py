"""The contact sheets of the texture stage."""

from __future__ import annotations

from pathlib import Path

import cv2

from benchmarks.texture.sheets import write_sheets
from tests.service.imaging.texture.textured import textured
from training.evaluate.cases import Case
from training.evaluate.contact_sheet import Row
from training.evaluate.painters import OpenCvPainter


def test_the_worst_are_painted_again_and_parts_of_128_pixels_are_shown_at_three_times_their_size(
    tmp_path: Path,
) -> None:
    picture = textured(160, 200, (slice(140, 156), slice(180, 200)))
    case = Case("a", picture.fill, picture.truth, picture.hole, "10-20 %")
    write_sheets([Row(case, {"telea": picture.fill})], [case], [OpenCvPainter("telea")], tmp_path)
    sheets = {path.stem: cv2.imread(str(path)) for path in tmp_path.iterdir()}
    three = 3 * 384 + 2 * 4
    widths = {name: sheet.shape[1] for name, sheet in sheets.items()}
    assert widths == {"whole": 3 * 200 + 2 * 4, "enlarged": three, "worst": three}
    shown = sheets["worst"][16:, :384]
    assert (shown == 255).all(2).mean() > 0.01  # the part that is shown includes the hole in the corner
