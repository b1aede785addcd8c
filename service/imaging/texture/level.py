"""One level of the picture's pyramid in the texture stage: its patches, their matches, and the fill made of them."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np

from service.core.pictures import Bool2D
from service.imaging.texture.parameters import REACH, Parameters
from service.imaging.texture.patch_match import GUIDE, SPARE, Floats, Kernel, Places, Step, View

LEAST_SOURCES = 50
"""Known patches below which there is no texture to copy."""
_SIDE = 2 * REACH + 1


class Level:
    """The picture at one size, and for each patch that touches the hole its match: a patch of the known part.

    Low frequencies are taken away before matching, and `picture` adds them again.

    Args:
        picture: H×W×3 in [0, 1], filled by the net.
        hole: H×W, True where nothing is copied from.
        redrawn: H×W, the part of the hole that gets texture.
        parameters: the choices of the stage.
        scale: side of one pixel of this size, in pixels of the full size.
    """

    def __init__(self, picture: Floats, hole: Bool2D, redrawn: Bool2D, parameters: Parameters, scale: float) -> None:
        self.redrawn, self.parameters = redrawn, parameters
        self.height, self.width = hole.shape
        marked = hole.astype(np.uint8)
        inner = np.zeros_like(hole)
        inner[REACH : self.height - REACH, REACH : self.width - REACH] = True
        known = inner & ~touched(hole)
        self._low = parameters.low_share * _blurred(picture, parameters.low_sigma / scale)
        self._now = _spared(picture - self._low)
        trust = parameters.trust_decay ** cv2.distanceTransform(marked, cv2.DIST_L2, 3)
        self.view = View(
            self.height,
            self.width,
            now=self._now,
            source=self._now.copy(),
            trust=np.maximum(trust, parameters.trust_least).astype(np.float32).ravel(),
            guide=_guide(picture, hole, parameters, scale).ravel(),
            valid=known.astype(np.uint8).ravel(),
            targets=_places(inner & touched(redrawn)),
            sources=_places(known),
        )
        self.matches: Places = np.full(len(self.view.targets), -1, np.int32)
        self.distances: Floats = np.zeros(len(self.view.targets), np.float32)

    @property
    def has_sources(self) -> bool:
        return len(self.view.sources) >= LEAST_SOURCES

    def search_afresh(self, kernel: Kernel, seed: int) -> None:
        """Find matches in the whole picture, without coherence: at first all matches are random, neighbours' too."""
        anywhere = max(self.height, self.width)
        how = Step(self.parameters.guide_weight, 0, 0, self.parameters.first_sweeps, anywhere, fresh=True, seed=seed)
        kernel.search(self.view, how, self.matches, self.distances)

    def improve(self, kernel: Kernel, seed: int) -> None:
        """Run one round: improve the matches, then fill the hole from them."""
        chosen = self.parameters
        coherence = chosen.coherence, chosen.coherence_flat
        how = Step(chosen.guide_weight, *coherence, chosen.sweeps, chosen.reach, fresh=False, seed=seed)
        kernel.search(self.view, how, self.matches, self.distances)
        self._vote(kernel)

    def _vote(self, kernel: Kernel) -> None:
        """Set each pixel to the mean of the matched patches over it; close matches in trusted places weigh most."""
        typical = np.percentile(self.distances, 75) + 1e-6
        weights = self.view.trust[self.view.targets] * np.exp(-self.distances / typical) + 1e-6
        window = _window(self.parameters.vote_decay)
        sums, totals = kernel.vote(self.view, self.matches, weights.astype(np.float32), window)
        filled = np.flatnonzero(self.redrawn.ravel() & (totals > 0))
        now = self._now[:-SPARE].reshape(-1, 3)
        now[filled] = sums.reshape(-1, 3)[filled] / totals[filled, None]

    def take_matches(self, half: Level, random: np.random.Generator) -> None:
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
        place = np.where(there, source_y * self.width + source_x, 0)
        known = there & (self.view.valid[place] > 0)
        self.matches = np.where(known, place, random.choice(self.view.sources, len(place))).astype(np.int32)

    def picture(self) -> Floats:
        """Return the picture as it is filled so far, H×W×3; values may leave [0, 1] a little."""
        found: Floats = self._now[:-SPARE].reshape(self.height, self.width, 3) + self._low
        return found


def touched(hole: Bool2D) -> Bool2D:
    """Mark the centres of patches that reach into the hole."""
    return cv2.dilate(hole.view(np.uint8), np.ones((_SIDE, _SIDE), np.uint8)).view(np.bool_)


def _blurred(values: Floats, sigma: float) -> Any:
    return cv2.GaussianBlur(values, (0, 0), max(0.5, sigma))


def _spared(picture: Floats) -> Floats:
    """Return the picture flat, with `SPARE` values after it."""
    return np.concatenate([picture.ravel(), np.zeros(SPARE, np.float32)]).astype(np.float32)


def _places(chosen: Bool2D) -> Places:
    return np.flatnonzero(chosen).astype(np.int32)


def _window(decay: float) -> Floats:
    """Return the weights of a patch's pixels, flat: a Gaussian of their distance from its centre."""
    offsets = range(-REACH, REACH + 1)
    return np.array([math.exp(-decay * (y * y + x * x)) for y in offsets for x in offsets], np.float32)


def _guide(picture: Floats, hole: Bool2D, parameters: Parameters, scale: float) -> Floats:
    """Describe each pixel, H×W×16: colour at two blurs, the grey on four sides, four contrasts; two values are 0.

    Darabi et al., "Image Melding", SIGGRAPH 2012, match gradients. Those of the net's fill are unreliable, so their
    energy is matched here.
    """
    low = _blurred(picture, parameters.guide_sigma / scale)
    guide = np.zeros((*picture.shape[:2], GUIDE), np.float32)
    guide[..., 0:3] = 0.7 * low
    guide[..., 3:6] = 0.5 * _blurred(picture, 2.5 * parameters.guide_sigma / scale)
    guide[..., 6:10] = 0.5 * _beside(low.mean(2))
    guide[..., 10:14] = parameters.contrast_weight * _contrasts(picture.mean(2), parameters.contrast_sigma)
    guide[..., 14:16] = parameters.nearness / 256 * scale * np.moveaxis(np.indices(hole.shape, np.float32), 0, 2)
    near = cv2.dilate(hole.astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
    guide[..., 10:14][near] *= parameters.contrast_gain
    return guide


def _beside(grey: Floats) -> Floats:
    """Return the values above, below, left and right at the distance of a patch's edge."""
    height, width = grey.shape
    padded = cv2.copyMakeBorder(grey, REACH, REACH, REACH, REACH, cv2.BORDER_REFLECT_101)
    offsets = ((0, REACH), (2 * REACH, REACH), (REACH, 0), (REACH, 2 * REACH))
    return np.stack([padded[y : y + height, x : x + width] for y, x in offsets], 2)


def _contrasts(grey: Floats, sigma: float) -> Floats:
    """Return the local RMS, H×W×4, of horizontal and vertical differences, and of what blurs of 1.2, and 3, remove."""
    fine, coarse = _blurred(grey, 1.2), _blurred(grey, 3)
    across, down = cv2.Sobel(grey, -1, 1, 0, ksize=1), cv2.Sobel(grey, -1, 0, 1, ksize=1)
    energies = (0.5 * across**2, 0.5 * down**2, (grey - fine) ** 2, (fine - coarse) ** 2)
    return np.stack([np.sqrt(_blurred(energy, sigma) + 1e-6) for energy in energies], 2)
