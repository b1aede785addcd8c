"""Compares the texture stage with the plain fill and with Telea's method, in one run.

    python -m benchmarks.texture models/photos/5 --truth DIR --lpips-features FILE --vgg-features FILE
        [--holes strokes] [--side 256] [--set NAME=VALUE] [--json FILE] [--sheets DIR]

Cases, holes and metrics are those of `python -m training evaluate`: centre crops, holes that cover `--coverage` of the
picture, seed 0. The table has three painters: `model` (the plain fill), `texture` and `telea`. The texture stage runs
on one thread, and its CPU time is printed. `--set` changes a parameter of service/imaging/texture/parameters.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from rich.console import Console

from benchmarks.harness.machine import load_average, machine_facts
from benchmarks.texture.comparison import compare, worst
from benchmarks.texture.painter import TexturePainter
from benchmarks.texture.sheets import write_sheets
from engines.engine_choice import EngineOptions
from service.imaging.texture.parameters import Parameters
from service.imaging.texture.patch_match import installed_kernel
from service.lifecycle.compiled import HOW_TO_INSTALL
from training.evaluate.cases import Protocol, read_cases
from training.evaluate.evaluating import MetricNets, evaluate
from training.evaluate.holes import Band
from training.evaluate.painters import OpenCvPainter, open_model
from training.evaluate.patch_features import PatchFeatures
from training.evaluate.report import table
from training.evaluate.shapes import KINDS
from training.losses.lpips_distance import load_lpips
from training.losses.vgg16 import load_features

_WORST = 8


def main() -> None:
    """Measure, print, and write the files that the flags name."""
    options = _parser().parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    chosen = Parameters(**changes(options.set))
    kernel = installed_kernel()
    if kernel is None:
        raise SystemExit(f"the texture stage's extension is not installed; {HOW_TO_INSTALL}")
    protocol = Protocol(
        data=options.truth,
        size=options.side,
        kinds=(options.holes,),
        coverage=Band(*options.coverage),
        limit=options.limit,
    )
    nets = MetricNets(lpips=load_lpips(options.lpips_features), vgg=PatchFeatures(load_features(options.vgg_features)))
    engine = EngineOptions(threads=1, cache_dir=options.cache_dir)
    with closing(open_model(options.model, engine)) as model:
        texture = TexturePainter(model, kernel, chosen)
        painters = [model, texture, OpenCvPainter("telea")]
        found = evaluate(painters, protocol, nets)
        milliseconds = np.array(texture.seconds) * 1000
        if options.sheets:
            names = worst(found.report, _WORST)
            bad = [case for case in read_cases(protocol) if case.name in names]
            write_sheets(found.rows, bad, painters, options.sheets)
    report: dict[str, Any] = found.report | {
        "parameters": asdict(chosen),
        "texture_ms": {"mean": round(float(milliseconds.mean()), 1), "max": round(float(milliseconds.max()), 1)},
        "machine": machine_facts() | {"load": load_average()},
    }
    Console(width=120).print(table(report))
    for line in compare(report):
        print(line)
    print(f"texture, processor ms a picture: {report['texture_ms']}; load {report['machine']['load']}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of the model version")
    parser.add_argument("--truth", type=Path, required=True, help="folder of photographs")
    parser.add_argument(
        "--lpips-features", type=Path, required=True, help="AlexNet's features (safetensors), for LPIPS"
    )
    parser.add_argument(
        "--vgg-features", type=Path, required=True, help="VGG16's features (safetensors), for the VGG distance"
    )
    parser.add_argument("--holes", choices=KINDS, default="strokes", help="kind of the holes")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument(
        "--coverage",
        type=float,
        nargs=2,
        default=(0.1, 0.5),
        metavar=("LOW", "HIGH"),
        help="range of the fraction of a picture that holes cover",
    )
    parser.add_argument("--limit", type=int, help="measure on the first so many pictures only")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter of service/imaging/texture/parameters.py to change; repeat for several",
    )
    parser.add_argument(
        "--cache-dir", type=Path, default=Path.home() / ".cache/retouch-benchmarks", help="folder for compiled engines"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--sheets", type=Path, metavar="DIR", help="folder for contact sheets")
    return parser


def changes(texts: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE; a value has the type of the parameter's default.

    Raises:
        SystemExit: there is no such parameter, or the value is not a number.
    """
    kinds = {field.name: type(field.default) for field in fields(Parameters)}
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise SystemExit(f"--set {text}: no such parameter; there are {', '.join(kinds)}")
        try:
            found[name] = kinds[name](value)
        except ValueError as error:
            raise SystemExit(f"--set {text}: {error}") from error
    return found


if __name__ == "__main__":
    main()
