"""Evaluates a net that generates pictures from random numbers, by comparing a set of them with a set of photographs.

A generated picture has no truth. So the sets are compared (KID of their patches), and the differences between the
pictures of each set are measured (diversity).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import cv2
import numpy as np
import torch
from torch import Tensor

from export.generators.family import Interface
from training.errors import ConfigInvalid, DataMissing
from training.evaluate.cases import Case, Pixels, Protocol, count_pictures, read_cases
from training.evaluate.painters import NetPainter
from training.evaluate.patch_features import Patches, PatchFeatures, kernel_distance
from training.evaluate.report import OVERALL
from training.loop.sheets import arrange_sheet

_RGB, _MIN_PICTURES = 3, 4


def evaluate_generated(
    model: NetPainter,
    protocol: Protocol,
    vgg: PatchFeatures | None,
    progress: Callable[[Sequence[Case]], Iterator[Case]] = iter,
) -> tuple[dict[str, dict[str, dict[str, float]]], list[Pixels]]:
    """Draw as many pictures as the protocol has photographs, from its seed, and measure both sets.

    Returns:
        Figures by set, `model` and `photographs`, under `all`: `kid` between the set's patches and the photographs'
        (for the photographs: between those with even and with odd index, the value of a perfect net), and `diversity`,
        the mean VGG distance of consecutive pictures in the set. Then the generated pictures.

    Raises:
        ConfigInvalid, DataMissing: as `check_generating`.
    """
    vgg = check_generating(model.name, model.interface, protocol, vgg)
    height, width = (int(length) for length in model.interface.output.shape[2:])
    numbers = int(model.interface.inputs[0].shape[1])
    cases = list(read_cases(protocol))
    latents = np.random.default_rng(protocol.seed).standard_normal((len(cases), numbers), np.float32)
    drawn = [model.draw(latent) for latent, _case in zip(latents, progress(cases), strict=True)]
    truths = [_scaled(case.truth, height, width) for case in cases]
    (made, diversity), (true, true_diversity) = _patches_and_diversity(drawn, vgg), _patches_and_diversity(truths, vgg)
    figures = {
        "model": {"diversity": diversity} | _kid(made, true),
        "photographs": {"diversity": true_diversity} | _kid(true[::2], true[1::2]),
    }
    return {name: {OVERALL: {"pictures": len(cases)} | row} for name, row in figures.items()}, drawn


def check_generating(name: str, net: Interface, protocol: Protocol, vgg: PatchFeatures | None) -> PatchFeatures:
    """Check that a `generate` net can be measured, and return the features to measure with; `name` is for messages.

    Raises:
        ConfigInvalid: the net takes more than random numbers, or its pictures are not RGB.
        DataMissing: there are no VGG16 features, or fewer than four photographs.
    """
    if [spec.name for spec in net.inputs] != ["latent"] or net.output.shape[1] != _RGB:
        raise ConfigInvalid(f"{name}: only RGB pictures drawn from `latent` alone are measured")
    if vgg is None:
        raise DataMissing("sets of pictures are compared by VGG16's features; give --vgg-features")
    if (number := count_pictures(protocol)) < _MIN_PICTURES:
        raise DataMissing(
            f"{protocol.data}: {number} photographs, but they are divided into two sets of at least two; give more"
        )
    return vgg


def arrange_grid(pictures: Sequence[Pixels]) -> Tensor:
    """Arrange the pictures, a square number of them, as a 3×H×W picture in [0, 1]."""
    side = int(len(pictures) ** 0.5)
    shown = torch.from_numpy(np.stack(pictures[: side * side])).permute(0, 3, 1, 2).float() / 255
    return arrange_sheet(shown.chunk(side))


def _scaled(pixels: Pixels, height: int, width: int) -> Pixels:
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _patches_and_diversity(pictures: Sequence[Pixels], vgg: PatchFeatures) -> tuple[list[Patches], float]:
    """Return each picture's patches, and the mean distance of consecutive pictures; the first follows the last."""
    patches: list[Patches] = []
    distances: list[float] = []
    first = before = vgg.extract(pictures[0], None)
    patches.append(first.patches)
    for pixels in pictures[1:]:
        current = vgg.extract(pixels, None)
        patches.append(current.patches)
        distances.append(vgg.distance(before, current))
        before = current
    distances.append(vgg.distance(before, first))
    return patches, round(float(np.mean(distances)), 5)


def _kid(one: Sequence[Patches], other: Sequence[Patches]) -> dict[str, float]:
    kid = kernel_distance(np.concatenate(one), np.concatenate(other))
    return {} if kid is None else {"kid": round(kid, 5)}
