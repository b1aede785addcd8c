"""MI-GAN from its reference checkpoint to HTTP: the fill equals that of the public pipelines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.service.requests.families.public_nets import (
    ROOT,
    Exported,
    Serve,
    as_png,
    asked,
    beyond_the_seam,
    golden,
    levels,
    mask_png,
    opened,
    rounded,
)
from tests.serving.image_files import png

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Window:
    """The part of a picture in the tile of a 64×64 net: its rows and columns, and its padding."""

    rows: slice
    columns: slice
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def tile(self, picture: NDArray[Any]) -> NDArray[Any]:
        """Return the tile H×W×C as IOPaint makes it: padded right and bottom by symmetric reflection."""
        return np.pad(picture[self.rows, self.columns], (*self.padding, (0, 0)), mode="symmetric")


@pytest.mark.parametrize(
    ("size", "hole", "window"),
    [
        ((64, 64), (slice(10, 40), slice(12, 50)), Window(slice(0, 64), slice(0, 64))),
        ((50, 40), (slice(20, 50), slice(0, 20)), Window(slice(0, 50), slice(0, 40), ((0, 14), (0, 24)))),
        ((200, 250), (slice(100, 132), slice(160, 192)), Window(slice(84, 148), slice(144, 208))),
    ],
    ids=["whole", "padded", "cropped"],
)
def test_migan_fills_as_the_public_pipelines(
    size: tuple[int, int],
    hole: tuple[slice, slice],
    window: Window,
    serve: Serve,
    exported: Callable[..., Exported],
    onnxrt: Any,
) -> None:
    """IOPaint crops the hole with half a tile around it, padded by reflection; upstream's demo takes a whole tile."""
    model = exported("golden/migan_64_tiny.pth")
    photo = cv2.cvtColor(cv2.imread(str(ROOT / "tests/data/dress.jpg")), cv2.COLOR_BGR2RGB)[: size[0], : size[1]]
    mask = np.zeros(size, np.float32)
    mask[hole] = 1
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", {"image": png(photo), "mask": mask_png(mask)}).content)
    seen = window.tile(photo).transpose(2, 0, 1)[None].astype(np.float32) / 255
    masked = window.tile(mask[:, :, None]).transpose(2, 0, 1)[None]
    fill = np.zeros((*size, 3))
    part = fill[window.rows, window.columns]
    part[:] = levels(model.reference(seen, masked)[0])[: part.shape[0], : part.shape[1]]
    inner = beyond_the_seam(mask)
    assert inner.sum() > 200
    assert np.abs(found - fill)[inner].max() <= 1
    np.testing.assert_array_equal(found[mask == 0], photo[mask == 0])


def test_migan_fills_as_its_golden(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, model = golden("migan_64_tiny"), exported("golden/migan_64_tiny.pth")
    with serve(onnxrt).client() as client:
        for image, mask, output in zip(arrays["image"], arrays["hole_mask"], arrays["output"], strict=True):
            files = {"image": as_png(image), "mask": mask_png(mask[0])}
            found = opened(asked(client, "inpaint", files, strategy="whole").content)
            assert np.abs(model.reference(image[None], mask[None])[0] - (output / 2 + 0.5)).max() < 1e-4
            wanted = levels(model.reference(rounded(image[None]), mask[None])[0])
            assert np.abs(found - wanted)[beyond_the_seam(mask[0])].max() <= 1
