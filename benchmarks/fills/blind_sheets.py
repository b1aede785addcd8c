"""Draws sheets of pairs for readers: the same holes filled by two models, left and right at random.

    python -m benchmarks.fills.blind_sheets MODEL OTHER --pictures 256=FOLDER --pictures 512=FOLDER --out OUT --key FILE

There is a sheet for each size and kind of hole; each is several PNGs of few pairs, so that details can be seen. A pair
is the picture with its hole in magenta, then both fills, as served with `strategy=auto`. `--seed` determines pictures,
holes and sides. Only the key says which model is on which side. `--texture first` (`second`, `both`) draws that model's
fills as served with `texture=copied`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from engines.base import Engine
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import read_manifest
from retouch.sweep.cases import Pixels, crop_or_scale, find_pictures
from retouch.sweep.measuring import fill
from service.core.pictures import Picture
from service.imaging import crops
from service.imaging.holes import find_depths, largest_radius
from service.imaging.texture.patch_match import Kernel, installed_kernel
from service.imaging.texture.windows import copy_texture, plan_texture
from service.lifecycle.compiled import HOW_TO_INSTALL
from training.data.rgb import to_rgb
from training.evaluate.holes import Band, Mask
from training.evaluate.shapes import KINDS, Kind, draw

BANDS = (Band(0.05, 0.2), Band(0.2, 0.4), Band(0.4, 0.6))
MAGENTA = np.array((255, 0, 255), np.uint8)
MAX_WIDTH, MAX_HEIGHT, GAP, TITLE = 1568, 1070, 4, 10
"""Pixels: width and height of a page, which viewers show almost unscaled; gap between pictures; title of a pair."""


class Pair(NamedTuple):
    """A picture with a hole, and its position: sheet and number."""

    sheet: str
    number: int
    name: str
    truth: Pixels
    hole: Mask


def pairs(folder: Path, size: int, kind: Kind, count: int, seed: int) -> Iterator[Pair]:
    """Choose different pictures for one sheet and draw their holes, with the bands of coverage in turn.

    Raises:
        SystemExit: the folder has fewer than `count` pictures of this size.
    """
    number = 0
    for path in find_pictures(folder, seed):
        with Image.open(path) as image:
            truth = crop_or_scale(to_rgb(image), size, square=True)
        if truth is None:
            continue
        hole = draw(kind, size, size, BANDS[number % len(BANDS)], Random(f"{seed} {size} {kind} {number}"))
        yield Pair(f"{size}-{kind}", number + 1, path.name, truth, hole)
        number += 1
        if number == count:
            return
    raise SystemExit(f"{folder}: {number} pictures of {size} pixels, not {count}; give another folder or --count")


class Side(NamedTuple):
    """One of the two models that are compared; without a kernel its fills get no texture."""

    engine: Engine
    kernel: Kernel | None

    @property
    def name(self) -> str:
        return self.engine.manifest.key + (", texture=copied" if self.kernel else "")


def served(pair: Pair, side: Side) -> Pixels:
    """Fill the pair's hole as a request with `strategy=auto` does."""
    plan = crops.plan_crops(pair.hole, side.engine.manifest.size, "auto")
    picture = fill(Picture(pair.truth), pair.hole, plan, side.engine)
    if side.kernel:
        copy_texture(picture, plan_texture(pair.hole), side.kernel)
    return np.asarray(picture.pixels, np.uint8)


def left_first(pair: Pair, seed: int) -> bool:
    """Whether the first model is on the left."""
    return Random(f"sides {seed} {pair.sheet} {pair.number}").random() < 0.5


def row(pair: Pair, sides: Sequence[Pixels]) -> Image.Image:
    """Draw hole, left and right side by side, under a title."""
    shown = [np.where(pair.hole[..., None], MAGENTA, pair.truth), *sides]
    side = pair.truth.shape[0]
    image = Image.new("RGB", (3 * side + 2 * GAP, side + TITLE), "white")
    titles = (f"{pair.sheet}, {pair.number}", f"{pair.number} LEFT", f"{pair.number} RIGHT")
    for column, (title, pixels) in enumerate(zip(titles, shown, strict=True)):
        ImageDraw.Draw(image).text((column * (side + GAP), -1), title, fill="black")
        image.paste(Image.fromarray(np.asarray(pixels, np.uint8)), (column * (side + GAP), TITLE))
    return image


def write_sheet(rows: Sequence[Image.Image], sheet: str, out: Path) -> None:
    """Write a sheet as PNGs of as many rows and columns as fit `MAX_WIDTH` and `MAX_HEIGHT`."""
    width, height = rows[0].width + 2 * GAP, rows[0].height
    columns, lines = max(1, MAX_WIDTH // width), max(1, MAX_HEIGHT // height)
    for part, start in enumerate(range(0, len(rows), columns * lines)):
        shown = rows[start : start + columns * lines]
        page = Image.new("RGB", (columns * width, -(-len(shown) // columns) * height), "white")
        for index, image in enumerate(shown):
            page.paste(image, (index % columns * width, index // columns * height))
        page.save(out / f"{sheet}-{part + 1:02d}.png")
        print(out / f"{sheet}-{part + 1:02d}.png", flush=True)


def main() -> None:
    """Write the sheets, and the key, which readers do not see."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs=2, help="folders of the two model versions")
    parser.add_argument(
        "--pictures",
        action="append",
        required=True,
        metavar="SIZE=FOLDER",
        help="folder of photographs and the side to which they are cut, in pixels; repeat for several",
    )
    parser.add_argument(
        "--texture", choices=("first", "second", "both"), help="model or models whose fills get texture=copied"
    )
    parser.add_argument("--count", type=int, default=40, help="pairs on a sheet")
    parser.add_argument("--seed", type=int, default=17, help="seed of the random choices")
    parser.add_argument("--out", type=Path, required=True, help="folder for the sheets")
    parser.add_argument("--key", type=Path, required=True, help="file that says which model filled which picture")
    parser.add_argument("--cache-dir", type=Path, default=Path("cache"), help="folder for compiled engines")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folders = {int(size): Path(folder) for size, _, folder in (text.partition("=") for text in options.pictures)}
    key: list[dict[str, Any]] = []
    with ExitStack() as stack:
        settings = EngineOptions(cache_dir=options.cache_dir)
        engines = [
            stack.enter_context(closing(open_engine(model, read_manifest(model), settings))) for model in options.models
        ]
        compared = [Side(*pair) for pair in zip(engines, _kernels(options.texture), strict=True)]
        for (size, folder), kind in product(folders.items(), KINDS):
            rows = []
            for pair in pairs(folder, size, kind, options.count, options.seed):
                order = compared if left_first(pair, options.seed) else compared[::-1]
                rows.append(row(pair, [served(pair, side) for side in order]))
                key.append(_answer(pair, [side.name for side in order]))
            write_sheet(rows, f"{size}-{kind}", options.out)
    options.key.write_text(json.dumps({"seed": options.seed, "pairs": key}, indent=1) + "\n")


def _kernels(textured: str | None) -> list[Kernel | None]:
    kernel = installed_kernel()
    if textured and kernel is None:
        raise SystemExit(f"--texture needs the extension; {HOW_TO_INSTALL}")
    return [kernel if textured in (side, "both") else None for side in ("first", "second")]


def _answer(pair: Pair, sides: Sequence[str]) -> dict[str, Any]:
    return {
        "sheet": pair.sheet,
        "number": pair.number,
        "picture": pair.name,
        "coverage": round(float(pair.hole.mean()), 4),
        "radius": round(largest_radius(find_depths(pair.hole)), 1),
        "left": sides[0],
        "right": sides[1],
    }


if __name__ == "__main__":
    main()
