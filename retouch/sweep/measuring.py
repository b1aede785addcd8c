"""Fills cases with each candidate, with the service's own stages, and compares results with the original pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from engines.base import Engine
from retouch.sweep.candidates import Candidate
from retouch.sweep.cases import Case, Pixels
from service.core.batch_rows import Crop
from service.core.errors import InferenceFailed
from service.core.pictures import Bool2D, Picture
from service.devices.cpu import CpuDevice
from service.imaging import crops, postprocess, preprocess
from service.imaging.holes import find_depths, largest_radius
from training.losses.lpips_distance import Lpips


@dataclass(frozen=True, slots=True)
class CandidateMeasurement:
    """The measurements of one candidate on one case.

    lpips: of the whole picture. pixels: of all tiles. seconds: planning, filling and pasting, without decoding.
    """

    lpips: float
    pixels: int
    crops: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CaseMeasurements:
    """The measurements of one case: its cell, its sizes in pixels of the picture, and the result of every candidate."""

    name: str
    size: int
    band: str
    kind: str
    longest_side: int
    radius: float
    coverage: float
    tried: Mapping[str, CandidateMeasurement]

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values, for `--json`."""
        return asdict(self)


def measure(
    cases: Iterable[Case], candidates: Mapping[str, Candidate], engine: Engine, lpips: Lpips, now: Callable[[], float]
) -> Iterator[CaseMeasurements]:
    """Yield one row for each case. Ways that plan the same crops are filled once and share the figures.

    Raises:
        EngineFailed, InferenceFailed: the engine cannot fill a case.
    """
    for case in cases:
        made: dict[str, tuple[Pixels, CandidateMeasurement]] = {}
        by_candidate = {
            name: _try_candidate(case, candidate, engine, now, made) for name, candidate in candidates.items()
        }
        distances = dict(
            zip(made, _lpips_distances(lpips, [filled for filled, _ in made.values()], case.truth), strict=True)
        )
        tried = {
            name: CandidateMeasurement(distances[key], one.pixels, one.crops, round(one.seconds, 4))
            for name, (key, one) in by_candidate.items()
        }
        radius, coverage = largest_radius(find_depths(case.hole)), float(case.hole.mean())
        cell = case.name, case.size, str(case.band), case.kind
        yield CaseMeasurements(*cell, max(case.hole.shape), round(radius, 1), round(coverage, 4), tried)


def fill(picture: Picture, hole: Bool2D, plan: list[Crop], engine: Engine) -> Picture:
    """Fill a picture's hole from the planned crops; returns the picture as a request gets it before encoding.

    Raises:
        EngineFailed: the engine cannot compute it.
        InferenceFailed: the engine returned values that are not finite.
    """
    tiles = []
    for crop in plan:
        sample = preprocess.inpaint_sample(picture, hole, crop, engine.manifest)
        (tile,) = CpuDevice().compute(engine, [sample])
        if tile is None:
            raise InferenceFailed(f"{engine.manifest.key} gave values that are not finite")
        tiles.append(tile)
    return postprocess.paste_fills(picture, hole, plan, tiles)


def _try_candidate(
    case: Case,
    candidate: Candidate,
    engine: Engine,
    now: Callable[[], float],
    made: dict[str, tuple[Pixels, CandidateMeasurement]],
) -> tuple[str, CandidateMeasurement]:
    """Fill a case with one candidate, unless `made` has it; returns its key in `made` and its measurements."""
    begun = now()
    plan = crops.plan_crops(case.hole, candidate.size, candidate.strategy)
    planned = now() - begun
    key = _plan_key(plan, case.hole)
    if key not in made:
        begun = now()
        filled = fill(Picture(case.truth), case.hole, plan, engine).pixels
        pixels = sum(crop.tile.height * crop.tile.width for crop in plan)
        made[key] = np.asarray(filled, np.uint8), CandidateMeasurement(0.0, pixels, len(plan), now() - begun)
    once = made[key][1]
    return key, CandidateMeasurement(0.0, once.pixels, once.crops, once.seconds + planned)


def _plan_key(plan: list[Crop], hole: Bool2D) -> str:
    """Return a key for the crops and the hole, equal for candidates that compute the same."""
    digest = hashlib.sha256()
    for crop in plan:
        box = crop.box
        own = hole[box.top : box.bottom, box.left : box.right] if crop.hole is None else crop.hole
        digest.update(repr((box, crop.scaled, crop.tile, crop.below, crop.right_of)).encode())
        digest.update(np.packbits(own).tobytes())
    return digest.hexdigest()


def _lpips_distances(lpips: Lpips, pictures: list[Pixels], truth: Pixels) -> list[float]:
    """Return the LPIPS distance of each picture to the truth; the truth's features are computed once."""
    with torch.inference_mode():
        found: list[float] = lpips(_to_tensor(np.stack(pictures)), _to_tensor(truth[None])).tolist()
    return found


def _to_tensor(pixels: Pixels) -> torch.Tensor:
    """Convert pixels, uint8 N×H×W×3, to N×3×H×W in [-1, 1]."""
    return torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float() / 127.5 - 1
