"""A photograph with holes of several sizes and kinds, by the label of its cell in a benchmark's table."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from random import Random

import numpy as np
from PIL import Image

from benchmarks.harness.inputs import photo_and_mask
from training.evaluate.holes import Band
from training.evaluate.shapes import Kind, draw

COVERAGES = (0.05, 0.3, 0.6)
KINDS: tuple[Kind, ...] = ("strokes", "boxes")


def fill_cases(sizes: Iterable[int]) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield, for each size, coverage and kind of hole, the label `512² 30 %`, a photograph (JPEG) and a mask (PNG).

    Kinds of hole share a label. The holes are the same in every run.
    """
    for size in sizes:
        photo, _ = photo_and_mask(size)
        for coverage in COVERAGES:
            for kind in KINDS:
                hole = draw(kind, size, size, Band(coverage, coverage), Random(f"{size} {coverage} {kind}"))
                mask = io.BytesIO()
                Image.fromarray(hole.astype(np.uint8) * 255).save(mask, "PNG")
                yield f"{size}² {coverage:.0%}", photo, mask.getvalue()
