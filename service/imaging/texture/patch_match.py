"""The search, the vote and the blend in C++: an optional extension, compiled when Retouch is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.lifecycle.compiled import address, load_library

_EXTENSION = f"{__package__}._patch_match"
"""Name of the extension module in pyproject.toml."""
_SOURCE = 0x75144D6F
"""Digest of patch_match.cpp, by which a library of another version is rejected."""
PADDING = 16
"""Values after the end of an array that the C++ may read and write, because it takes several at a time."""

Floats = NDArray[np.float32]
Indices = NDArray[np.int32]
"""Pixels of a picture by their index y · width + x."""


class Step(NamedTuple):
    """One sweep over the targets, with its parameters."""

    guide_weight: float
    coherence: float
    coherence_flat: float
    crowding: float
    crowding_flat: float
    reach: int
    fresh: bool
    """Whether the search starts from random matches, with two random sources tried for each target."""
    first: bool = True
    """Whether this is the first sweep of a search: targets may have no match; `fresh` ignores existing ones."""
    backward: bool = False
    """Whether the sweep goes from the last target to the first."""
    seed: int = 0


class Part(NamedTuple):
    """A range of the targets' numbers, or of rows: `begin` to `end` (excluded)."""

    begin: int
    end: int


class View(NamedTuple):
    """A picture H×W as the kernel reads it. Arrays are flat; those of H·W·3 have `PADDING` more values."""

    height: int
    width: int
    now: Floats
    """H·W·3, the picture as it is filled so far; the vote writes to it."""
    source: Floats
    """H·W·3, the picture that known patches are copied from."""
    trust: Floats
    """H·W, in (0, 1]: how reliable each pixel is; 1 outside the hole."""
    guide: Floats
    """H·W·16: the features of each pixel that are matched besides its colour."""
    valid: NDArray[np.uint8]
    """H·W, 1 at centres of known patches."""
    known: NDArray[np.uint8]
    """H·W, 1 outside the hole."""
    redrawn: NDArray[np.uint8]
    """H·W, 1 where the vote sets pixels."""
    across: Floats
    """H·W·3, differences from each pixel to the next one to the right; the vote writes to it."""
    down: Floats
    """H·W·3, differences from each pixel to the one below; the vote writes to it."""
    numbers: Indices
    """H·W, the number of the target at each pixel, -1 where there is none."""
    targets: Indices
    """Centres of the patches that touch the hole, in the order of rows."""
    sources: Indices
    """Centres of known patches."""


class Kernel(Protocol):
    """The three loops that take most of the stage's time. Threads may compute parts of a sweep or vote at once."""

    def sweep(self, view: View, step: Step, part: Part, before: Indices, matches: Indices, distances: Floats) -> None:
        """Improve the matches of a part of the targets in `matches` and `distances`, in place.

        Args:
            view: the picture.
            step: the sweep.
            part: the targets.
            before: a copy of `matches` from before the sweep, used for neighbours in other parts.
            matches: the source of every target, not only of the part's (-1: none yet).
            distances: the distance of every target to its source.
        """

    def vote(self, view: View, rows: Part, matches: Indices, weights: Floats, window: Floats) -> None:
        """Set the redrawn pixels of some rows of `view.now` to the weighted mean of the matched patches over them.

        The differences between neighbours, `view.across` and `view.down`, are set in the same way.

        Args:
            view: the picture.
            rows: the rows.
            matches: the source of each target.
            weights: the weight of each target's patch.
            window: 5·5, the weights of the pixels of a patch.
        """

    def blend(self, view: View, pull: float, outline: float) -> None:
        """Change the redrawn pixels of `view.now` by least squares, so that they differ from neighbours as voted.

        Args:
            view: the picture, after the vote of all its rows.
            pull: the weight of the voted colours against the voted differences, above 0.
            outline: a voted colour's difference to its neighbour is kept where it is further than this, in RGB of
                [0, 1], from the voted difference; above 0.
        """


class StoppableKernel(NamedTuple):
    """A kernel that calls `stop` before each of its calls; `stop` raises an error to end the stage."""

    kernel: Kernel
    stop: Callable[[], None]

    def sweep(self, view: View, step: Step, part: Part, before: Indices, matches: Indices, distances: Floats) -> None:
        self.stop()
        self.kernel.sweep(view, step, part, before, matches, distances)

    def vote(self, view: View, rows: Part, matches: Indices, weights: Floats, window: Floats) -> None:
        self.stop()
        self.kernel.vote(view, rows, matches, weights, window)

    def blend(self, view: View, pull: float, outline: float) -> None:
        self.stop()
        self.kernel.blend(view, pull, outline)


def installed_kernel() -> CompiledKernel | None:
    """Load the extension; None if Retouch was installed without it, or it is that of another version."""
    library = load_library(_EXTENSION, _SOURCE)
    return None if library is None else CompiledKernel(library)


_PLANES = (
    *("now", "source", "trust", "guide", "valid", "known", "redrawn", "across", "down"),
    *("numbers", "targets", "sources"),
)


class _View(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("height", "width", "target_count", "source_count")),
        *((name, ctypes.c_void_p) for name in _PLANES),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_float)
            for name in ("guide_weight", "coherence", "coherence_flat", "crowding", "crowding_flat")
        ),
        *((name, ctypes.c_int32) for name in ("reach", "fresh", "first", "backward")),
        ("seed", ctypes.c_uint32),
    ]


class _Part(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_int32), ("end", ctypes.c_int32)]


class CompiledKernel:
    """The kernel of a library that was compiled from patch_match.cpp."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.sweep.restype = self._library.vote.restype = self._library.blend.restype = None

    def sweep(self, view: View, step: Step, part: Part, before: Indices, matches: Indices, distances: Floats) -> None:
        chosen = _Step(*step[:-1], step.seed % 2**32)
        arrays = map(address, (before, matches, distances))
        self._library.sweep(_passed(view), ctypes.byref(chosen), ctypes.byref(_Part(*part)), *arrays)

    def vote(self, view: View, rows: Part, matches: Indices, weights: Floats, window: Floats) -> None:
        arrays = map(address, (matches, weights, window))
        self._library.vote(_passed(view), ctypes.byref(_Part(*rows)), *arrays)

    def blend(self, view: View, pull: float, outline: float) -> None:
        self._library.blend(_passed(view), ctypes.c_float(pull), ctypes.c_float(outline))


def _passed(view: View) -> Any:
    """Return a reference to the view's fields in the order of the C++; it holds addresses, not the arrays."""
    counts = len(view.targets), len(view.sources)
    return ctypes.byref(_View(view.height, view.width, *counts, *(address(getattr(view, name)) for name in _PLANES)))
