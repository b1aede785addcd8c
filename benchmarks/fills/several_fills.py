"""Measures the different fills of one picture that a model offers for `samples=8`.

    python -m benchmarks.fills.several_fills models/photos/5 FOLDER --lpips-features FILE [--kind boxes] [--sheet PNG]

The model fills 256² centre crops in eight orientations or, if it draws random numbers, from eight seeds. For each fill:
LPIPS to the photograph, in relation to the first fill's, and PSNR in the hole; for each picture the mean LPIPS between
two of its fills.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.fills.arguments import make_parser
from engines.engine_choice import EngineOptions
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.imaging.orientations import ORIENTATIONS, turn_back, turn_row
from training.evaluate.cases import Case, Pixels, Protocol, read_cases
from training.evaluate.holes import Band
from training.evaluate.painters import NetPainter, Painter, open_model
from training.evaluate.shapes import KINDS
from training.losses.lpips_distance import Lpips, load_lpips

GREY = 128


class CaseMeasurement(NamedTuple):
    """Figures of the fills of one picture."""

    to_photograph: list[float]
    """LPIPS of each fill."""
    psnr_db: list[float]
    """PSNR of each fill, in the hole."""
    between: float
    """Mean LPIPS between two fills."""


def fill_in_orientations(painter: Painter, case: Case) -> list[Pixels]:
    """Return the fill of each orientation, turned back."""
    found = []
    for orientation in ORIENTATIONS:
        arrays: dict[str, Any] = {"source": case.source, "truth": case.truth, "hole": case.hole}
        turned = turn_row(Sample(Size(*case.truth.shape[:2]), arrays), orientation).arrays
        found.append(turn_back(painter.paint(case._replace(**turned)), orientation))
    return found


def fill_from_seeds(painter: NetPainter, case: Case) -> list[Pixels]:
    """Return as many fills as there are orientations, each from other random numbers."""
    found = []
    for seed in range(len(ORIENTATIONS)):
        painter.seed = seed
        found.append(painter.paint(case))
    return found


def measure(fills: Sequence[Pixels], case: Case, lpips: Lpips) -> CaseMeasurement:
    """Compare fills with the photograph and with each other."""
    hole = np.asarray(case.hole) > 0
    errors = [np.square(fill[hole].astype(float) - case.truth[hole]).mean() for fill in fills]
    return CaseMeasurement(
        to_photograph=[lpips.distance(fill, case.truth) for fill in fills],
        psnr_db=[float(10 * np.log10(255**2 / error)) for error in errors],
        between=fmean(lpips.distance(one, other) for one, other in combinations(fills, 2)),
    )


def summarise(measured: Sequence[CaseMeasurement]) -> dict[str, Any]:
    """Return means over the pictures."""
    distances = np.array([one.to_photograph for one in measured]).mean(axis=0)
    return {
        "pictures": len(measured),
        "lpips": float(distances[0]),
        "lpips_of_first": (distances / distances[0]).round(4).tolist(),
        "psnr_db": np.array([one.psnr_db for one in measured]).mean(axis=0).round(2).tolist(),
        "lpips_between": fmean(one.between for one in measured),
        "lpips_of_nearest": fmean(min(one.to_photograph) for one in measured) / float(distances[0]),
    }


def sheet_row(fills: Sequence[Pixels], case: Case) -> Pixels:
    """Return the picture with a grey hole, and beside it the first four fills."""
    shown = np.where(np.asarray(case.hole)[..., None] > 0, GREY, case.truth).astype(np.uint8)
    return np.concatenate([shown, *fills[:4]], axis=1)


def main() -> None:
    """Fill, measure, print."""
    parser = make_parser(__doc__)
    parser.add_argument("--kind", choices=KINDS, default="strokes", help="shape of the holes")
    parser.add_argument("--count", type=int, default=30, help="number of photographs, by file name")
    parser.add_argument("--sheet", type=Path, help="draw the first pictures with four fills of each, as a PNG")
    options = parser.parse_args()
    protocol = Protocol(data=options.folder, kinds=(options.kind,), coverage=Band(0.1, 0.5), limit=options.count)
    lpips, measured, rows = load_lpips(options.lpips_features), [], []
    with closing(open_model(options.model, EngineOptions(threads=options.threads, cache_dir=options.cache_dir))) as net:
        for case in read_cases(protocol):
            fills = fill_from_seeds(net, case) if net.draws_numbers else fill_in_orientations(net, case)
            measured.append(measure(fills, case, lpips))
            rows.append(sheet_row(fills, case))
    report = {"model": str(options.model), "kind": options.kind, **summarise(measured)}
    print(json.dumps(report, indent=1))
    if options.sheet:
        Image.fromarray(np.concatenate(rows[:8])).save(options.sheet)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
