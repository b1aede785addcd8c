"""The shipped model for class ids, with the README's request."""

from __future__ import annotations

import io
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.serving.served_process import ROOT, ServedProcess

pytestmark = pytest.mark.slow

IDS = ROOT / "tests/data/class_ids/facade.png"


def test_the_example_of_ids_becomes_a_facade_whose_door_is_darker_than_its_wall(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "facades-labels").symlink_to(ROOT / "models/facades-labels")
    process = ServedProcess(tmp_path, models_dir=models, engine="onnxrt").start()
    try:
        files = {name: ("ids.png", IDS.read_bytes()) for name in ("image", "instance")}
        data = {"model": "facades-labels", "format": "png"}
        reply = httpx.post(f"{process.url}/v1/translate", files=files, data=data, timeout=60)
    finally:
        process.kill()
    assert reply.status_code == 200, reply.text
    with Image.open(io.BytesIO(reply.content)) as image, Image.open(IDS) as ids:
        made, labels = np.asarray(image.convert("L"), float), np.asarray(ids)
    assert made.shape == (256, 256)
    assert made.std() > 20
    assert made[labels == 4].mean() < made[labels == 2].mean() - 20  # the door is darker than the wall
