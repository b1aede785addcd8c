"""Makes the README's pictures and the contact sheet with the shipped models, through `retouch` without a server.

Run it as `.venv/bin/python -m benchmarks.host.pictures`. All are made from the CC0 photographs in tests/data.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from benchmarks.harness.inputs import ROOT, newest_version
from engines.engine_choice import EngineOptions
from training.data.label_maps import facade_labels
from training.evaluate.cases import Case
from training.evaluate.painters import EnginePainter

DATA = ROOT / "tests/data"
OUTPUT = ROOT / "docs/pictures"
GAP = 8
STROKES = {
    "crocs": [((20, 40), (110, 60), (150, 20)), ((30, 250), (90, 290), (200, 300)), ((210, 60), (235, 150))],
    "skirt": [((15, 30), (60, 90)), ((190, 60), (240, 40)), ((60, 300), (190, 320)), ((110, 150), (160, 190))],
}
BOXES = {"crocs": (40, 90, 210, 260), "skirt": (50, 60, 200, 250), "dress": (60, 60, 200, 260)}


def retouch(*arguments: str | Path) -> None:
    """Run the `retouch` command of this environment."""
    command = [Path(sys.executable).with_name("retouch"), *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def draw_mask(size: tuple[int, int], strokes: list[tuple[tuple[int, int], ...]]) -> Image.Image:
    """Draw white brush strokes on black."""
    mask = Image.new("L", size)
    draw = ImageDraw.Draw(mask)
    for stroke in strokes:
        draw.line(stroke, fill=255, width=14, joint="curve")
    return mask


def side_by_side(images: list[Image.Image]) -> Image.Image:
    """Join images of the same height in a row, on white."""
    width = sum(image.width + GAP for image in images) - GAP
    sheet = Image.new("RGB", (width, images[0].height), "white")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + GAP
    return sheet


def facade_of_ids(labels: Image.Image, folder: Path) -> Image.Image:
    """Make a facade of a label map in colours by the model of class ids."""
    colours = np.asarray(labels.convert("RGB"))
    painter = EnginePainter(newest_version(ROOT / "models/facades-labels"), EngineOptions(cache_dir=folder))
    try:
        return Image.fromarray(painter.paint(Case("ids", colours, colours, None, "all", labels=facade_labels(colours))))
    finally:
        painter.close()


def contact_sheet() -> None:
    """Make the contact sheet of the newest photos model with `evaluate`: input, model, Telea, truth."""
    newest = newest_version(ROOT / "models/photos")
    with tempfile.TemporaryDirectory() as folder:
        for path in DATA.glob("*.jpg"):  # masks and labels are PNG
            shutil.copy(path, folder)
        command = [sys.executable, "-m", "training", "evaluate", newest, "--data", folder, "--baselines", "telea"]
        command += ["--sheet", OUTPUT / "contact_sheet.png", "--cache-dir", folder]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def fill(photo: Path, hole: Image.Image, folder: Path) -> list[Image.Image]:
    """Fill a hole; returns the photograph with its hole in white, and the result."""
    mask, filled = folder / "mask.png", folder / f"{photo.stem}.png"
    hole.save(mask)
    retouch("inpaint", photo, mask, "-o", filled, "--overwrite")
    shown = Image.open(photo).convert("RGB")
    shown.paste((255, 255, 255), mask=hole)
    return [shown, Image.open(filled).convert("RGB")]


def failures(folder: Path) -> None:
    """Make the pictures of the model's card: boxes that cover most of an object."""
    row: list[Image.Image] = []
    for name, box in BOXES.items():
        photo = DATA / f"{name}.jpg"
        with Image.open(photo) as image:
            hole = Image.new("L", image.size)
        ImageDraw.Draw(hole).rectangle(box, fill=255)
        row += fill(photo, hole, folder)
    side_by_side([image.crop((0, 0, 256, 340)) for image in row]).save(OUTPUT / "failures.png")


def main() -> None:
    """Make all pictures."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    OUTPUT.mkdir(exist_ok=True)
    contact_sheet()
    with tempfile.TemporaryDirectory() as folder:
        row: list[Image.Image] = []
        for name, strokes in STROKES.items():
            photo = DATA / f"{name}.jpg"
            with Image.open(photo) as image:
                hole = draw_mask(image.size, strokes)
            row += fill(photo, hole, Path(folder))
        side_by_side([image.crop((0, 0, 256, 340)) for image in row]).save(OUTPUT / "inpaint.png")
        failures(Path(folder))
        retouch("translate", DATA / "facade_labels.png", "-o", Path(folder, "facade.png"))
        labels, facade = Image.open(DATA / "facade_labels.png"), Image.open(Path(folder, "facade.png"))
        row = [labels.convert("RGB"), facade.convert("RGB"), facade_of_ids(labels, Path(folder))]
        side_by_side(row).save(OUTPUT / "translate.png")


if __name__ == "__main__":
    main()
