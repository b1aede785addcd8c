"""Compares two candidates for filling pictures of 12 megapixels, scaled down or in crops: quality, time and memory.

    python -m benchmarks.fills.large_fills models/photos/5 FOLDER --lpips-features FILE [--json FILE] [--pictures OUT]

Each way runs in a separate process, whose peak resident memory is reported. LPIPS is measured on the whole picture
scaled down to 1024 pixels, and on windows of 512² in and around the hole at full resolution.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import cv2
import numpy as np
from PIL import Image

from benchmarks.fills.arguments import make_parser
from engines.engine_choice import EngineOptions, open_engine
from engines.fill_rules import FillRule, FillRules
from engines.manifest import SizeRule, read_manifest
from retouch.sweep.measuring import fill
from service.core.pictures import Bool2D, Picture
from service.imaging import crops
from training.evaluate.holes import Band
from training.evaluate.shapes import KINDS, draw
from training.losses.lpips_distance import Lpips, load_lpips

BANDS = (Band(0.01, 0.03), Band(0.05, 0.2))
WINDOWS, WINDOW = 6, 512


def candidates(size: SizeRule) -> dict[str, tuple[SizeRule, str]]:
    """Return the candidates: a size rule and a strategy for each name."""
    native = FillRules(measured="a try", rules=(FillRule(strategy="crop"),))
    return {
        "whole": (size, "whole"),
        "native crops": (size.model_copy(update={"auto": native}), "auto"),
        "strategy=crop": (size, "crop"),
        "strategy=auto": (size, "auto"),
    }


def cases(folder: Path) -> list[tuple[Path, str, Band]]:
    """Return each picture with the kind and coverage of its hole."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    return [(path, KINDS[index % 3], BANDS[index % 2]) for index, path in enumerate(paths)]


def load(path: Path, kind: Any, band: Band) -> tuple[np.ndarray[Any, Any], Bool2D]:
    """Return the picture, and a hole that is drawn small and enlarged."""
    truth = np.array(Image.open(path).convert("RGB"))
    height, width = truth.shape[:2]
    small = draw(kind, height // 4, width // 4, band, Random(path.name))
    hole: Any = cv2.resize(small.view(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
    return truth, hole.astype(np.bool_)


def measure(name: str, options: argparse.Namespace) -> None:
    """Fill all pictures in one way; runs in a separate process, so that its peak memory is that of this way."""
    cv2.setNumThreads(options.threads)
    manifest = read_manifest(options.model)
    engine = open_engine(options.model, manifest, EngineOptions(threads=options.threads, cache_dir=options.cache_dir))
    rule, strategy = candidates(manifest.size)[name]
    rows: list[dict[str, Any]] = []
    filled = []
    for path, kind, band in cases(options.folder):
        truth, hole = load(path, kind, band)
        if not rows:
            fill(Picture(truth), hole, crops.plan_crops(hole, rule, strategy), engine)  # warm-up
        started = time.perf_counter()
        plan = crops.plan_crops(hole, rule, strategy)
        result = fill(Picture(truth), hole, plan, engine).pixels
        seconds = time.perf_counter() - started
        rows.append({"picture": path.name, "kind": kind, "coverage": float(hole.mean()), "seconds": seconds})
        rows[-1]["crops"] = len(plan)
        rows[-1]["megapixels"] = sum(crop.tile.height * crop.tile.width for crop in plan) / 1e6
        target = options.pictures / f"{path.stem}-{name.replace(' ', '-').replace('=', '-')}.png"
        Image.fromarray(result).save(target, compress_level=1)
        filled.append(str(target))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (options.pictures / f"{name}.json").write_text(json.dumps({"rows": rows, "filled": filled, "peak_mib": peak}))


def judge(lpips: Lpips, filled: Path, truth: np.ndarray[Any, Any], hole: Bool2D) -> tuple[float, float]:
    """Return LPIPS at 1024 pixels, and over windows around points of the hole at full resolution."""
    pixels = np.array(Image.open(filled))
    scale = 1024 / max(hole.shape)
    small = [cv2.resize(one, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) for one in (pixels, truth)]
    ys, xs = np.nonzero(hole)
    places = Random(filled.name.partition("-")[0]).sample(range(len(ys)), WINDOWS)
    found = []
    for place in places:
        top = int(np.clip(ys[place] - WINDOW // 2, 0, hole.shape[0] - WINDOW))
        left = int(np.clip(xs[place] - WINDOW // 2, 0, hole.shape[1] - WINDOW))
        part = slice(top, top + WINDOW), slice(left, left + WINDOW)
        found.append(lpips.distance(pixels[part], truth[part]))
    return lpips.distance(small[0], small[1]), fmean(found)


def main() -> None:
    """Fill, judge, print."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--pictures", type=Path, default=Path("results/large-fills"), help="folder for the filled pictures"
    )
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {}
    for name in candidates(read_manifest(options.model).size):
        child = multiprocessing.get_context("spawn").Process(target=measure, args=(name, options))
        child.start()
        child.join()
        report[name] = json.loads((options.pictures / f"{name}.json").read_text())
    add_quality(report, options)
    for name, way in report.items():
        means = {key: fmean(row[key] for row in way["rows"]) for key in ("seconds", "lpips_1024", "lpips_full")}
        print(name, {key: round(value, 4) for key, value in means.items()}, f"{way['peak_mib']:.0f} MiB at most")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def add_quality(report: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Add both LPIPS distances to every row."""
    lpips = load_lpips(options.lpips_features)
    for index, case in enumerate(cases(options.folder)):
        truth, hole = load(*case)
        for way in report.values():
            row = way["rows"][index]
            row["lpips_1024"], row["lpips_full"] = judge(lpips, Path(way["filled"][index]), truth, hole)


if __name__ == "__main__":
    main()
