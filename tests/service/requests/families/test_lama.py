"""LaMa from its reference checkpoint to HTTP: the fill equals that of the public pipelines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("size", "sides"),
    [((64, 96), (64, 96)), ((70, 50), (56, 72))],
    ids=["whole", "padded"],
)
def test_lama_fills_as_the_public_pipelines(
    size: tuple[int, int], sides: tuple[int, ...], serve: Serve, exported: Callable[..., Exported], onnxrt: Any
) -> None:
    """Both public pipelines pad right and bottom to multiples of 8 by symmetric reflection, and truncate the output."""
    model = exported("golden/lama_tiny_torchscript.pt", sides=sides)
    whole = cv2.cvtColor(cv2.imread(str(ROOT / "tests/data/dress.jpg")), cv2.COLOR_BGR2RGB)
    photo, mask = whole[: size[0], : size[1]], np.zeros(size, np.float32)
    mask[12:, 10:40] = 1
    padding = ((0, -size[0] % 8), (0, -size[1] % 8), (0, 0))
    seen, holes = (np.pad(part, padding, mode="symmetric") for part in (photo, mask[:, :, None]))
    filled = model.reference(*(part.transpose(2, 0, 1)[None] for part in (seen.astype(np.float32) / 255, holes)))
    public = np.floor(levels(filled[0]))[: size[0], : size[1]]
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", {"image": png(photo), "mask": mask_png(mask)}).content)
    inner = beyond_the_seam(mask)
    assert inner.sum() > 200
    assert np.abs(found - public)[inner].max() <= 1
    np.testing.assert_array_equal(found[mask == 0], photo[mask == 0])


def test_lama_fills_as_its_golden(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, model = golden("lama_tiny"), exported("golden/lama_tiny_torchscript.pt", sides=(64, 96))
    assert np.abs(model.reference(arrays["image"], arrays["mask"]) - arrays["predicted"]).max() < 1e-4
    with serve(onnxrt).client() as client:
        for image, mask in zip(arrays["image"], arrays["mask"], strict=True):
            files = {"image": as_png(image), "mask": mask_png(mask[0])}
            found = opened(asked(client, "inpaint", files, strategy="whole").content)
            wanted = levels(model.reference(rounded(image[None]), mask[None])[0])
            assert np.abs(found - wanted)[beyond_the_seam(mask[0])].max() <= 1
