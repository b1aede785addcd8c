"""DCGAN from its reference checkpoint to HTTP: the PNG equals the public implementation's output."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.service.requests.families.public_nets import Exported, Serve, asked, golden, levels, opened

pytestmark = pytest.mark.slow


def test_dcgan_draws_its_golden_pictures(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, _ = golden("dcgan_64_tiny"), exported("golden/dcgan_64_tiny.pth")
    running = serve(onnxrt, generate_model="golden")
    pipeline, drawn = running.service.pipeline, running.service.pipeline.draw
    with running.client() as client:
        pipeline.draw = lambda _seed, index, _length: arrays["z"][index, :, 0, 0]
        images = asked(client, "generate", {}, count=4).json()["images"]
        pipeline.draw = drawn
        one, same, other = (asked(client, "generate", {}, seed=seed).content for seed in (1, 1, 2))
    for image, output in zip(images, arrays["output"], strict=True):
        assert np.abs(opened(base64.b64decode(image["image_base64"])) - levels((output + 1) / 2)).max() <= 1
    assert one == same
    assert np.abs(opened(one) - opened(other)).max() > 10
