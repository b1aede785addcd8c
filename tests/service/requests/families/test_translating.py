"""Translators from their reference checkpoints to HTTP: the PNG equals the public implementation's output.

The service feeds models 8-bit input. Where that rounding changes a reference's output by more than one level, the PNG
is compared with the public net on the rounded input, and the public net with the reference on the exact input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.service.requests.families.public_nets import Exported, Serve, as_png, asked, golden, levels, opened, rounded
from tests.serving.image_files import png

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["pix2pix_unet_256_batch_tiny", "pix2pix_resnet_9blocks_instance_tiny"])
def test_pix2pix_translates_as_its_golden(
    name: str, serve: Serve, exported: Callable[..., Exported], onnxrt: Any
) -> None:
    arrays, model = golden(name), exported(f"golden/{name}.pth")
    image, output = (arrays["image"] + 1) / 2, (arrays["output"] + 1) / 2
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "translate", {"image": as_png(image[0])}).content)
    assert np.abs(model.reference(image) - output).max() < 1e-4
    assert np.abs(found - levels(model.reference(rounded(image))[0])).max() <= 1
    if "unet" in name:  # with nine random blocks, half a level of input changes up to ten
        assert np.abs(found - levels(output[0])).max() <= 1


@pytest.mark.parametrize("name", ["pix2pixhd_global_tiny", "pix2pixhd_local_tiny"])
def test_pix2pixhd_translates_as_its_golden(
    name: str, serve: Serve, exported: Callable[..., Exported], onnxrt: Any
) -> None:
    arrays = golden(name)
    model = exported(f"golden/{name}.pth", sides=(128, 256))
    files = {
        "image": png(arrays["label"][0].transpose(1, 2, 0).astype(np.uint8)),
        "instance": png(arrays["inst"][0].transpose(1, 2, 0).astype(np.uint16)),
    }
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "translate", files).content)
        (told,) = client.get("/v1/models").json()["models"]
    assert np.abs(found - levels((arrays["output"][0] + 1) / 2)).max() <= 1
    assert model.manifest.generator == told["manifest"]["generator"]
    assert told["takes"]["parts"][0]["description"].startswith("class ids 0 to 34")
