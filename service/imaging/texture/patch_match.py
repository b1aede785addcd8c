"""The search and the vote in C++: an optional extension, compiled when Retouch is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.lifecycle.compiled import address, load_library

_EXTENSION = f"{__package__}._patch_match"
"""Name of the extension module in pyproject.toml."""
_SOURCE = 0xB8E3BCC5
"""Digest of patch_match.cpp, which has it, too."""
GUIDE = 16
"""Values of the guide at each pixel, as the C++ reads them."""
SPARE = 16
"""Values after the end of an array that the C++ may read and write, because it takes several at a time."""

Floats = NDArray[np.float32]
Places = NDArray[np.int32]
"""Pixels of a picture by their index y · width + x."""


class Step(NamedTuple):
    """One search, with its parameters. `fresh`: from random matches, with two random sources tried for each target."""

    guide_weight: float
    coherence: float
    coherence_flat: float
    sweeps: int
    reach: int
    fresh: bool
    seed: int


class View(NamedTuple):
    """A picture H×W as the kernel reads it. Arrays are flat; `now` and `source` have `SPARE` more values."""

    height: int
    width: int
    now: Floats
    """H·W·3, the picture as it is filled so far."""
    source: Floats
    """H·W·3, the picture that known patches are copied from."""
    trust: Floats
    """H·W, in (0, 1]: how reliable each pixel is; 1 outside the hole."""
    guide: Floats
    """H·W·16: the features of each pixel that are matched besides its colour."""
    valid: NDArray[np.uint8]
    """H·W, 1 at centres of known patches."""
    targets: Places
    """Centres of the patches that touch the hole."""
    sources: Places
    """Centres of known patches."""


class Kernel(Protocol):
    """The two loops that take nearly all of the stage's time."""

    def search(self, view: View, step: Step, matches: Places, distances: Floats) -> None:
        """Improve `matches`, the source of each target (-1: none yet), and set `distances`, both in place."""

    def vote(self, view: View, matches: Places, weights: Floats, window: Floats) -> tuple[Floats, Floats]:
        """Return the weighted sums of the matched patches' colours at each pixel, H·W·3, and of their weights, H·W.

        Args:
            view: the picture.
            matches: the source of each target.
            weights: the weight of each target's patch.
            window: 5·5, the weights of the pixels of a patch.
        """


class StoppableKernel(NamedTuple):
    """A kernel that calls `stop` before each search of up to 0.6 s; `stop` raises an error to end the stage."""

    kernel: Kernel
    stop: Callable[[], None]

    def search(self, view: View, step: Step, matches: Places, distances: Floats) -> None:
        self.stop()
        self.kernel.search(view, step, matches, distances)

    def vote(self, view: View, matches: Places, weights: Floats, window: Floats) -> tuple[Floats, Floats]:
        return self.kernel.vote(view, matches, weights, window)


def installed_kernel() -> CompiledKernel | None:
    """Load the extension; None where Retouch was installed without it, or with that of another version."""
    library = load_library(_EXTENSION, _SOURCE)
    return None if library is None else CompiledKernel(library)


class _View(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("height", "width", "target_count", "source_count")),
        *((name, ctypes.c_void_p) for name in ("now", "source", "trust", "guide", "valid", "targets", "sources")),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_float) for name in ("guide_weight", "coherence", "coherence_flat")),
        *((name, ctypes.c_int32) for name in ("sweeps", "reach", "fresh")),
        ("seed", ctypes.c_uint32),
    ]


class CompiledKernel:
    """The kernel of a library that was compiled from patch_match.cpp."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.search.restype = self._library.vote.restype = None

    def search(self, view: View, step: Step, matches: Places, distances: Floats) -> None:
        chosen = _Step(*step[:-1], step.seed % 2**32)
        self._library.search(_passed(view), ctypes.byref(chosen), address(matches), address(distances))

    def vote(self, view: View, matches: Places, weights: Floats, window: Floats) -> tuple[Floats, Floats]:
        pixels = view.height * view.width
        sums, totals = np.zeros(pixels * 3 + SPARE, np.float32), np.zeros(pixels, np.float32)
        self._library.vote(_passed(view), *map(address, (matches, weights, window, sums, totals)))
        return sums[:-SPARE], totals


def _passed(view: View) -> Any:
    """Return a reference to the view's fields in the order of the C++; it holds addresses, not the arrays."""
    planes: tuple[NDArray[Any], ...] = (
        view.now,
        view.source,
        view.trust,
        view.guide,
        view.valid,
        view.targets,
        view.sources,
    )
    counts = len(view.targets), len(view.sources)
    return ctypes.byref(_View(view.height, view.width, *counts, *map(address, planes)))
