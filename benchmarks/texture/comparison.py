"""The comparison of texture with the plain fill and Telea's, from an evaluation's report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_RESAMPLED = 1000


def compare(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each class of hole, by coverage first, and one with the interval of the ratio of mean LPIPS."""
    pictures: Sequence[Mapping[str, Any]] = report["pictures"]
    for key in ("band", "thickness"):
        for name in sorted({picture[key] for picture in pictures}, key=_first_number):
            yield _line(name, [picture for picture in pictures if picture[key] == name])
    yield _line("all", pictures)
    low, high = interval(pictures)
    yield f"LPIPS of texture over the plain fill's, 95 % of {_RESAMPLED} resamples: {low:.3f} to {high:.3f}"


def _first_number(name: str) -> tuple[bool, int]:
    digits = name.removeprefix("over ").split("-", maxsplit=1)[0].split()[0]
    return name.startswith("over"), int(digits) if digits.isdecimal() else 0


def _line(name: str, pictures: Sequence[Mapping[str, Any]]) -> str:
    plain, ours, telea = (_figures_of(pictures, painter, "lpips").mean() for painter in ("model", "texture", "telea"))
    vgg = _figures_of(pictures, "texture", "vgg").mean() / _figures_of(pictures, "model", "vgg").mean()
    lower = {
        key: (_figures_of(pictures, "texture", key) < _figures_of(pictures, "model", key)).sum()
        for key in ("lpips", "vgg")
    }
    return (
        f"{name}, {len(pictures)} pictures: LPIPS of Telea's: plain {plain / telea:.3f}, texture {ours / telea:.3f}; "
        f"texture of plain: LPIPS {ours / plain:.3f}, lower in {lower['lpips']}, VGG {vgg:.3f}, lower in {lower['vgg']}"
    )


def interval(pictures: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the bounds of the ratio of mean LPIPS, texture over plain, under resampling of the pictures."""
    ours, plain = _figures_of(pictures, "texture", "lpips"), _figures_of(pictures, "model", "lpips")
    chosen = np.random.default_rng(0).integers(0, len(ours), (_RESAMPLED, len(ours)))
    low, high = np.percentile(ours[chosen].mean(1) / plain[chosen].mean(1), (2.5, 97.5))
    return float(low), float(high)


def worst(report: Mapping[str, Any], count: int) -> list[str]:
    """Return the names of the `count` pictures whose LPIPS the texture raises most."""
    pictures: Sequence[Mapping[str, Any]] = report["pictures"]
    gain = _figures_of(pictures, "texture", "lpips") - _figures_of(pictures, "model", "lpips")
    return [str(pictures[index]["name"]) for index in np.argsort(-gain, kind="stable")[:count]]


def _figures_of(pictures: Sequence[Mapping[str, Any]], painter: str, figure: str) -> Any:
    return np.array([picture[painter][figure] for picture in pictures])
