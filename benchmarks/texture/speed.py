"""Times the texture stage by instruction set, on one core.

    python -m benchmarks.texture.speed models/photos/5 --truth DIR [--side 256] [--pictures 8] [--rounds 5]

Processor time of the stage behind the net, per picture: every kernel fills every picture in each round, in turn, so
that what else runs on the machine meets all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.harness.machine import load_average, machine_facts
from benchmarks.texture.parameters import Parameters
from benchmarks.texture.patch_match import CACHE, CompiledKernel, Floats, Kernel, Places, Step, View, build
from benchmarks.texture.stage import add_texture
from engines.engine_choice import EngineOptions
from training.evaluate.cases import Pixels, Protocol, read_cases
from training.evaluate.holes import Mask
from training.evaluate.painters import open_model
from training.evaluate.shapes import KINDS

MARCHES = ("native", "x86-64-v3", "x86-64")


class TimedKernel:
    """A kernel whose processor time is added up: the rest of the stage is OpenCV's and numpy's."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.seconds = 0.0

    def search(self, view: View, step: Step, matches: Places, distances: Floats) -> None:
        begun = time.process_time()
        self._kernel.search(view, step, matches, distances)
        self.seconds += time.process_time() - begun

    def vote(self, view: View, matches: Places, weights: Floats, window: Floats) -> tuple[Floats, Floats]:
        begun = time.process_time()
        found = self._kernel.vote(view, matches, weights, window)
        self.seconds += time.process_time() - begun
        return found


def main() -> None:
    """Fill with the net, time every kernel, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--truth", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--march", nargs="+", default=MARCHES)
    parser.add_argument("--cache-dir", type=Path, default=CACHE)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    fills = _fills(options)
    kernels: dict[str, Kernel] = {march: CompiledKernel(build(march, options.cache_dir)) for march in options.march}
    time_kernels(kernels, fills, options.rounds)


def time_kernels(kernels: Mapping[str, Kernel], fills: Sequence[tuple[Pixels, Mask]], rounds: int) -> None:
    """Time the kernels on fills H×W×3 with their holes H×W, and print how many bytes of the results differ."""
    milliseconds = {name: np.zeros((rounds, len(fills), 2)) for name in kernels}
    painted: dict[str, list[Pixels]] = {}
    for number in range(rounds):
        for picture, (fill, hole) in enumerate(fills):
            for name, kernel in kernels.items():
                timed, begun = TimedKernel(kernel), time.process_time()
                found = add_texture(fill, hole, timed, Parameters())
                seconds = time.process_time() - begun, timed.seconds
                milliseconds[name][number, picture] = np.array(seconds) * 1000
                if number == 0:
                    painted.setdefault(name, []).append(found)
    _print(milliseconds, painted)


def _fills(options: argparse.Namespace) -> list[tuple[Pixels, Mask]]:
    protocol = Protocol(data=options.truth, size=options.side, kinds=KINDS, limit=options.pictures)
    with closing(open_model(options.model, EngineOptions(threads=1, cache_dir=options.cache_dir))) as net:
        return [(net.paint(case), case.hole) for case in read_cases(protocol) if case.hole is not None]


def _print(milliseconds: Mapping[str, Any], painted: Mapping[str, Sequence[Pixels]]) -> None:
    print(f"{machine_facts()}, load {load_average()}")
    first = next(iter(painted))
    for name, taken in milliseconds.items():
        stage, kernel = np.median(taken, 0).T  # of the rounds, for each picture
        differ = sum(int(np.sum(one != other)) for one, other in zip(painted[name], painted[first], strict=True))
        print(
            f"{name}: {stage.mean():.1f} ms a picture ({stage.min():.1f} to {stage.max():.1f}), "
            f"of which kernel {kernel.mean():.1f}; {differ} bytes differ from those of {first}"
        )


if __name__ == "__main__":
    main()
