"""One level of the picture's pyramid in the texture stage: its patches, their matches, and the fill made of them."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import cv2
import numpy as np

from service.core.pictures import Bool2D
from service.imaging.pool.parallel_steps import StepRunner
from service.imaging.texture.parameters import REACH, Parameters
from service.imaging.texture.patch_match import PADDING, Floats, Indices, Kernel, Part, Step, View

MIN_SOURCES = 50
"""Fewest known patches from which texture is copied."""
_SIDE = 2 * REACH + 1
_MIN_PART = 4096
"""Least targets of a part of a sweep, about 1 ms of a core: handing over less takes as long as it saves."""
_MAX_PARTS = 8
"""Most parts of a sweep. At their borders matches spread one sweep later."""
_SEEDS = 1_000_003
"""Distance between the seeds of two sweeps, so that they differ from the seeds of a sweep's parts."""


class Level:
    """The picture at one size, and for each patch that touches the hole its match: a patch of the known part.

    Low frequencies are subtracted before matching, and `picture` adds them again.

    Args:
        picture: H×W×3 in [0, 1], filled by the net.
        hole: H×W, True where nothing is copied from.
        redrawn: H×W, the part of the hole that gets texture.
        parameters: the choices of the stage.
        scale: side of one pixel of this level, in pixels of the full size.
        run_steps: runs several steps in parallel; the result does not depend on the number of threads.
    """

    def __init__(
        self,
        picture: Floats,
        hole: Bool2D,
        redrawn: Bool2D,
        parameters: Parameters,
        scale: float,
        run_steps: StepRunner,
    ) -> None:
        self.parameters, self._run_steps = parameters, run_steps
        self.height, self.width = hole.shape
        inner = np.zeros_like(hole)
        inner[REACH : self.height - REACH, REACH : self.width - REACH] = True
        known = inner & ~touched(hole)
        targets = _indices(inner & touched(redrawn))
        self._part_count = min(_MAX_PARTS, max(1, len(targets) // _MIN_PART))
        numbers = np.full(hole.size, -1, np.int32)
        numbers[targets] = np.arange(len(targets), dtype=np.int32)
        low, guide = run_steps(
            [
                partial(_blurred, picture, parameters.low_sigma / scale),
                partial(_guide, picture, hole, parameters, scale, run_steps),
            ]
        )
        self._low = parameters.low_share * low
        self._now = _padded(picture - self._low)
        trust = parameters.trust_decay ** cv2.distanceTransform(hole.astype(np.uint8), cv2.DIST_L2, 3)
        self.view = View(
            self.height,
            self.width,
            now=self._now,
            source=self._now.copy(),
            trust=np.maximum(trust, parameters.trust_least).astype(np.float32).ravel(),
            guide=guide.ravel(),
            valid=known.astype(np.uint8).ravel(),
            known=(~hole).astype(np.uint8).ravel(),
            redrawn=redrawn.astype(np.uint8).ravel(),
            across=np.zeros_like(self._now),
            down=np.zeros_like(self._now),
            numbers=numbers,
            targets=targets,
            sources=_indices(known),
        )
        self.matches: Indices = np.full(len(targets), -1, np.int32)
        self.distances: Floats = np.zeros(len(targets), np.float32)

    @property
    def has_sources(self) -> bool:
        return len(self.view.sources) >= MIN_SOURCES

    def search_from_scratch(self, kernel: Kernel) -> None:
        """Find matches in the whole picture, without coherence, because the neighbours' matches are random at first."""
        anywhere = max(self.height, self.width)
        chosen = self.parameters
        crowding = chosen.crowding, chosen.crowding_flat
        step = Step(chosen.guide_weight, 0, 0, *crowding, anywhere, fresh=True, seed=chosen.seed)
        self._search(kernel, step, chosen.first_sweeps)

    def start(self, kernel: Kernel) -> None:
        """Fill the hole from the matches of half size, near its edge mostly with the net's fill.

        So the search at full size sees few of the ripples that nets draw in the middle of holes.
        """
        fill = self._now.copy()
        self._vote(kernel)
        now, net = (values[:-PADDING].reshape(-1, 3) for values in (self._now, fill))
        now += self.view.trust[:, None] * (net - now)

    def improve(self, kernel: Kernel, number: int) -> None:
        """Run round `number` (from 0): improve the matches, then fill the hole from them."""
        chosen = self.parameters
        seed = chosen.seed + 1 + number
        penalties = chosen.coherence, chosen.coherence_flat, chosen.crowding, chosen.crowding_flat
        step = Step(chosen.guide_weight, *penalties, chosen.reach, fresh=False, seed=seed)
        self._search(kernel, step, chosen.sweeps)
        self._vote(kernel)

    def _search(self, kernel: Kernel, step: Step, sweeps: int) -> None:
        """Sweep from the top and from the bottom in turn; the parts of a sweep do not depend on the threads."""
        count = len(self.view.targets)
        parts = _parts(count, self._part_count)
        for number in range(sweeps):
            now = step._replace(first=number == 0, backward=number % 2 == 1, seed=step.seed + _SEEDS * number)
            before = self.matches.copy()
            self._run_steps(
                [partial(kernel.sweep, self.view, now, part, before, self.matches, self.distances) for part in parts]
            )

    def _vote(self, kernel: Kernel) -> None:
        """Set each pixel to the mean of the matched patches over it; close matches in trusted places weigh most.

        Then blend: where patches of different light meet, the mean has edges that none of them has.
        """
        typical = np.percentile(self.distances, 75) + 1e-6
        weights = self.view.trust[self.view.targets] * np.exp(-self.distances / typical) + 1e-6
        arrays = self.matches, weights.astype(np.float32), _window(self.parameters.vote_decay)
        rows = _parts(self.height, self._part_count)
        self._run_steps([partial(kernel.vote, self.view, part, *arrays) for part in rows])
        kernel.blend(self.view, self.parameters.vote_pull, self.parameters.outline)

    def upsample_matches(self, half: Level, random: np.random.Generator) -> None:
        """Start from the matches at half the size; where those are not known patches of this size, from random ones."""
        found = np.full(half.height * half.width, -1, np.int32)
        found[half.view.targets] = half.matches
        y, x = np.divmod(self.view.targets, self.width)
        half_y = np.clip(y // 2, REACH, half.height - REACH - 1)
        half_x = np.clip(x // 2, REACH, half.width - REACH - 1)
        source = found[half_y * half.width + half_x]
        source_y = source // half.width * 2 + y - 2 * half_y
        source_x = source % half.width * 2 + x - 2 * half_x
        there = (source >= 0) & (source_y >= 0) & (source_y < self.height) & (source_x >= 0) & (source_x < self.width)
        index = np.where(there, source_y * self.width + source_x, 0)
        known = there & (self.view.valid[index] > 0)
        self.matches = np.where(known, index, random.choice(self.view.sources, len(index))).astype(np.int32)

    def picture(self) -> Floats:
        """Return the picture as it is filled so far, H×W×3; values may leave [0, 1] a little."""
        found: Floats = self._now[:-PADDING].reshape(self.height, self.width, 3) + self._low
        return found


def _parts(count: int, parts: int) -> list[Part]:
    """Divide `count` things evenly."""
    borders = [count * number // parts for number in range(parts + 1)]
    return [Part(begin, end) for begin, end in pairwise(borders)]


def touched(hole: Bool2D) -> Bool2D:
    """Mark the centres of patches that reach into the hole."""
    return cv2.dilate(hole.view(np.uint8), np.ones((_SIDE, _SIDE), np.uint8)).view(np.bool_)


def _blurred(values: Floats, sigma: float) -> Any:
    return cv2.GaussianBlur(values, (0, 0), max(0.5, sigma))


def _padded(picture: Floats) -> Floats:
    """Return the picture flat, with `PADDING` values after it."""
    return np.concatenate([picture.ravel(), np.zeros(PADDING, np.float32)]).astype(np.float32)


def _indices(chosen: Bool2D) -> Indices:
    return np.flatnonzero(chosen).astype(np.int32)


def _window(decay: float) -> Floats:
    """Return the weights of a patch's pixels, flat: a Gaussian of their distance from its centre."""
    offsets = range(-REACH, REACH + 1)
    return np.array([math.exp(-decay * (y * y + x * x)) for y in offsets for x in offsets], np.float32)


def _guide(picture: Floats, hole: Bool2D, parameters: Parameters, scale: float, run_steps: StepRunner) -> Floats:
    """Describe each pixel, H×W×16: colour at two blurs, the grey on four sides, four contrasts, its place.

    Darabi et al., "Image Melding", SIGGRAPH 2012, match gradients. The gradients of the net's fill are unreliable, so
    their local energy is matched here.
    """
    low, lower, contrasts = run_steps(
        [
            partial(_blurred, picture, parameters.guide_sigma / scale),
            partial(_blurred, picture, 2.5 * parameters.guide_sigma / scale),
            partial(_contrasts, picture.mean(2), parameters.contrast_sigma),
        ]
    )
    near = cv2.dilate(hole.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    gain = np.float32(parameters.contrast_weight) * np.where(near, np.float32(parameters.contrast_gain), np.float32(1))
    positions = np.float32(parameters.nearness / 256 * scale) * np.indices(hole.shape, np.float32)
    planes = [
        *cv2.split(0.7 * low),
        *cv2.split(0.5 * lower),
        *(0.5 * neighbour for neighbour in _neighbours(low.mean(2))),
        *(gain * contrast for contrast in contrasts),
        *positions,
    ]
    guide: Any = cv2.merge(planes)  # in one pass over its memory
    return np.asarray(guide, np.float32)


def _neighbours(grey: Floats) -> list[Floats]:
    """Return the values above, below, left and right at the distance of a patch's edge."""
    height, width = grey.shape
    padded: Any = cv2.copyMakeBorder(grey, REACH, REACH, REACH, REACH, cv2.BORDER_REFLECT_101)
    offsets = ((0, REACH), (2 * REACH, REACH), (REACH, 0), (REACH, 2 * REACH))
    return [padded[y : y + height, x : x + width] for y, x in offsets]


def _contrasts(grey: Floats, sigma: float) -> list[Floats]:
    """Return four local RMS values, H×W each.

    They are those of the horizontal and vertical differences, of the detail finer than a Gaussian of sigma 1.2, and of
    the detail between sigmas 1.2 and 3.
    """
    fine, coarse = _blurred(grey, 1.2), _blurred(grey, 3)
    across, down = cv2.Sobel(grey, -1, 1, 0, ksize=1), cv2.Sobel(grey, -1, 0, 1, ksize=1)
    energies = (0.5 * across**2, 0.5 * down**2, (grey - fine) ** 2, (fine - coarse) ** 2)
    return [np.sqrt(_blurred(energy, sigma) + 1e-6) for energy in energies]
