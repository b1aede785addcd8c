"""FID: the Fréchet distance between two sets of pictures, as Gaussians in the features of a given net.

Source: Heusel et al., "GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium", 2017.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from training.errors import DataMissing
from training.evaluate.cases import Pixels

Features = NDArray[np.float64]
"""N×D, a row for each picture."""


class FeatureNet:
    """A TorchScript file that maps N×3×H×W uint8 with `return_features=True` to N×D.

    Published FIDs use an Inception net in this form (inception-2015-12-05.pt, with its own
    resizing inside); figures of any other net cannot be compared with published ones.

    Raises:
        DataMissing: the file cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        try:
            with warnings.catch_warnings():
                # TorchScript, the format of the file, is deprecated
                warnings.simplefilter("ignore", DeprecationWarning)
                self._net: Any = torch.jit.load(str(path), map_location="cpu").eval()  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError, OSError) as error:
            raise DataMissing(f"{path}: not a TorchScript feature net ({str(error).splitlines()[0]})") from error

    def features(self, pictures: Sequence[Pixels]) -> Features:
        with torch.inference_mode():
            rows = [
                self._net(torch.from_numpy(pixels).permute(2, 0, 1)[None], return_features=True).double().numpy()
                for pixels in pictures
            ]
        return np.concatenate(rows)


def frechet_distance(one: Features, other: Features) -> float:
    """Compute |m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^½) of the two sets' means and covariances.

    The trace of the root is the sum of the roots of C1 C2's eigenvalues, which are those of a symmetric product.

    Raises:
        DataMissing: a set has fewer than two rows, and so no covariance.
    """
    if (fewest := min(len(one), len(other))) < 2:
        raise DataMissing(
            f"FID needs at least two pictures, but there are {fewest}; give more, or leave out --fid-features"
        )
    means = one.mean(0) - other.mean(0)
    first, second = np.atleast_2d(np.cov(one, rowvar=False)), np.atleast_2d(np.cov(other, rowvar=False))
    values, vectors = np.linalg.eigh(first)
    root = (vectors * np.sqrt(values.clip(0))) @ vectors.T
    cross = np.sqrt(np.linalg.eigvalsh(root @ second @ root).clip(0)).sum()
    return float(means @ means + np.trace(first) + np.trace(second) - 2 * cross)
