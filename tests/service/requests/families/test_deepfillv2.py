"""DeepFillv2 from its reference checkpoints to HTTP: the fill equals that of the public nets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
from export.generators.deepfillv2.net import DeepFillV2Options  # noqa: E402 -- needs torch
from tests.export.generators.csqiangwen_files import seeded_state  # noqa: E402 -- needs torch

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["deepfillv2_pt_tiny", "deepfillv2_tf_tiny"])
def test_deepfillv2_fills_as_its_golden(
    name: str, serve: Serve, exported: Callable[..., Exported], onnxrt: Any
) -> None:
    arrays, model = golden(name), exported(f"golden/{name}.pth", sides=(64, 96, 128))
    with serve(onnxrt).client() as client:
        for suffix in ("", "_128x64"):
            image, mask = arrays[f"image{suffix}"], arrays[f"mask{suffix}"]
            files = {"image": as_png(image[0]), "mask": mask_png(mask[0, 0])}
            found = opened(asked(client, "inpaint", files, strategy="whole").content)
            assert np.abs(model.reference(image, mask) * 2 - 1 - arrays[f"stage2{suffix}"]).max() < 1e-2
            wanted = levels(model.reference(rounded(image), mask)[0])
            inner = beyond_the_seam(mask[0, 0])
            assert inner.any()
            assert np.abs(found - wanted)[inner].max() <= 1


@pytest.mark.parametrize("name", ["deepfillv2_pt_tiny", "deepfillv2_tf_tiny", "csqiangwen"])
def test_deepfillv2_fills_photographs_as_the_public_scripts(
    name: str, tmp_path: Path, serve: Serve, exported: Callable[..., Exported], onnxrt: Any
) -> None:
    """Both projects' scripts truncate values; neither pads, so the photograph's sides are multiples of 8."""
    file = f"golden/{name}.pth"
    if name == "csqiangwen":
        file = str(tmp_path / "net.pth")
        torch.save(seeded_state(DeepFillV2Options(layout="csqiangwen", cnum=4)), file)
    model = exported(file, sides=(64, 96))
    photo = cv2.cvtColor(cv2.imread(str(ROOT / "tests/data/dress.jpg")), cv2.COLOR_BGR2RGB)[:64, :96]
    mask = np.zeros((64, 96), np.float32)
    mask[12:50, 20:60] = 1
    seen, hole = photo.transpose(2, 0, 1)[None].astype(np.float32) / 255, mask[None, None]
    public = np.floor(levels(model.reference(seen, hole)[0]))
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", {"image": png(photo), "mask": mask_png(mask)}).content)
    inner = beyond_the_seam(mask)
    assert inner.sum() > 200
    assert np.abs(found - public)[inner].max() <= 1
    np.testing.assert_array_equal(found[mask == 0], photo[mask == 0])
