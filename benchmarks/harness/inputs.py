"""The pictures that benchmarks send, and models for the fake engine."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from engines.manifest import MANIFEST_FILE
from retouch.bench.sender import encode
from tests.serving.fake_models import fake_manifest

ROOT = Path(__file__).resolve().parents[2]
PHOTO = ROOT / "tests/data/dress.jpg"


Holes = Sequence[tuple[float, float, float]]
"""Left, top and diameter of each hole, relative to the side of the mask."""
THREE_HOLES: Holes = ((0.2, 0.3, 0.2), (0.6, 0.2, 0.1), (0.5, 0.6, 0.25))
ONE_HOLE: Holes = ((0.4, 0.55, 0.2),)


def photo_and_mask(side: int, positions: Holes = THREE_HOLES) -> tuple[bytes, bytes]:
    """Make a photograph as JPEG and a mask with holes as PNG, both `side` pixels square."""
    photo, mask = io.BytesIO(), io.BytesIO()
    Image.open(PHOTO).convert("RGB").resize((side, side)).save(photo, "JPEG", quality=92)
    holes = Image.new("L", (side, side))
    draw = ImageDraw.Draw(holes)
    for x, y, size in positions:
        draw.ellipse([x * side, y * side, (x + size) * side, (y + size) * side], fill=255)
    holes.save(mask, "PNG")
    return photo.getvalue(), mask.getvalue()


def inpaint_body(side: int, positions: Holes = THREE_HOLES, **fields: str) -> tuple[str, bytes]:
    """Return content type and body of an inpaint request of `side`² with a JPEG reply, computed as one tile."""
    photo, mask = photo_and_mask(side, positions)
    chosen = {"format": "jpeg", "strategy": "whole", **fields}
    payload = encode("/v1/inpaint", {"image": photo, "mask": mask}, chosen)
    return payload.content_type, payload.body


def translate_body(side: int, **fields: str) -> tuple[str, bytes]:
    """Return content type and body of a translation of `side`² with a JPEG reply."""
    payload = encode("/v1/translate", {"image": photo_and_mask(side)[0]}, {"format": "jpeg", **fields})
    return payload.content_type, payload.body


BODIES: dict[str, Callable[..., tuple[str, bytes]]] = {"inpaint": inpaint_body, "translate": translate_body}
"""By task: `BODIES[task](side, **fields)`."""


def newest_version(model: Path) -> Path:
    """Return the folder of a model's newest version."""
    return max(model.iterdir(), key=lambda path: int(path.name))


def write_fake_models(models: Path, sides: tuple[int, ...] = (64,), max_batch: int = 8) -> None:
    """Write `photos` (inpaint) and `facades` (translate) as manifests without weights, for the fake engine."""
    multiple = {"kind": "multiple", "multiple_of": 32, "sides": list(sides)}
    fixed = {"kind": "fixed", "height": sides[0], "width": sides[0], "fit": "resize"}
    for name, task, size in (("photos", "inpaint", multiple), ("facades", "translate", fixed)):
        manifest = fake_manifest(name, task, size=size, max_batch=max_batch)
        directory = models / name / "1"
        directory.mkdir(parents=True, exist_ok=True)
        # older revisions, which benchmarks.versions serves, refuse unknown fields
        (directory / MANIFEST_FILE).write_text(manifest.model_dump_json(exclude_unset=True))
