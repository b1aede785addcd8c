"""Inpainting families from their reference checkpoints to HTTP: the fill equals the public implementation's."""

from __future__ import annotations

import base64
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


def test_pgn_fills_as_its_golden(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, model = golden("pgn_four_tiny"), exported("golden/pgn_four_tiny.pth")
    mask = np.zeros((1, 1, 128, 128), np.float32)
    mask[..., 32:96, 32:96] = 1
    inner = beyond_the_seam(mask[0, 0])
    with serve(onnxrt).client() as client:
        for full, output in zip(arrays["image_full"], arrays["output"], strict=True):
            files = {"image": as_png(full), "mask": mask_png(mask[0, 0])}
            found = opened(asked(client, "inpaint", files).content)
            assert np.abs(model.reference(full[None], mask)[0] - output).max() < 1e-4
            # rounding the input by half a level can change the output of four chained random nets by 18 levels
            wanted = levels(model.reference(rounded(full[None]), mask)[0])
            assert np.abs(found - wanted)[inner].max() <= 1
            np.testing.assert_array_equal(found[mask[0, 0] == 0], np.rint(levels(full))[mask[0, 0] == 0])


def test_pgn_fills_holes_anywhere(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    exported("golden/pgn_four_tiny.pth")
    photo = cv2.cvtColor(cv2.imread(str(ROOT / "tests/data/dress.jpg")), cv2.COLOR_BGR2RGB)
    mask = np.zeros(photo.shape[:2], np.float32)
    mask[:30, :50], mask[100:230, 60:90], mask[-5:, -3:] = 1, 1, 1
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", {"image": png(photo), "mask": mask_png(mask)}).content)
    np.testing.assert_array_equal(found[mask == 0], photo[mask == 0])
    assert (found != photo).any(axis=2)[mask == 1].mean() > 0.9


def test_pdgan_fills_as_its_golden(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, _ = golden("pdgan_ones_tiny"), exported("golden/pdgan_ones_tiny.pth")
    mask = arrays["hole_mask"][0, 0]
    files = {"image": as_png((arrays["image"][0] + 1) / 2), "mask": mask_png(mask)}
    running = serve(onnxrt)
    pipeline, drawn = running.service.pipeline, running.service.pipeline.draw
    with running.client() as client:
        pipeline.draw = lambda _seed, index, _length: arrays["z2" if index else "z"][0]
        images = asked(client, "inpaint", files, samples=2).json()["images"]
        pipeline.draw = drawn
        one, same, other = (asked(client, "inpaint", files, seed=seed).content for seed in (1, 1, 2))
    for image, name in zip(images, ("output", "output_z2"), strict=True):
        found = opened(base64.b64decode(image["image_base64"]))
        wanted = levels((arrays[name][0] + 1) / 2)
        assert np.abs(found - wanted)[beyond_the_seam(mask)].max() <= 1
    assert one == same
    assert (opened(one) != opened(other)).any(axis=2)[mask == 1].mean() > 0.1


def test_partial_convolution_fills_as_its_golden(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays = golden("pconv_photos")
    exported("checkpoints/pconv_photos.pth", sides=(256,))
    mask = arrays["mask"][0, 0]
    files = {"image": as_png(arrays["image"][0]), "mask": mask_png(mask)}
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", files, strategy="whole").content)
    inner = beyond_the_seam(mask)
    assert inner.any()
    assert np.abs(found - levels(arrays["output"][0]))[inner].max() <= 1
    np.testing.assert_array_equal(found[mask == 0], np.rint(levels(arrays["image"][0]))[mask == 0])
