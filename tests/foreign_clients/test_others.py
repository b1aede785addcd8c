"""LiteLLM, webuiapi, krita-iopaint's request, and curl."""

from __future__ import annotations

import base64
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import litellm
import numpy as np
import pytest
import webuiapi
from PIL import Image

ROOT = Path(__file__).parents[2]
InBase64 = Callable[[bytes], str]


def test_litellm_edits(url: str, photo: bytes, alpha_mask: bytes, native: bytes) -> None:
    files = {"image": io.BytesIO(photo), "mask": io.BytesIO(alpha_mask)}
    reply = litellm.image_edit(model="openai/photos", prompt="", api_base=f"{url}/v1", api_key="none", **files)
    assert base64.b64decode(reply.data[0].b64_json) == native


def fills(name: str) -> bool:
    """Whether a shipped model fills pictures, which is its manifests' task."""
    manifests = (ROOT / "models" / name).glob("*/manifest.json")
    return {json.loads(path.read_text("utf-8"))["task"] for path in manifests} == {"inpaint"}


def test_webuiapi_fills(url: str, photo: bytes, mask: bytes, native: bytes, shipped: list[str]) -> None:
    port = int(url.rpartition(":")[2])
    image, hole = Image.open(io.BytesIO(photo)), Image.open(io.BytesIO(mask)).convert("L")
    api = webuiapi.WebUIApi(host="127.0.0.1", port=port)
    api.set_auth("anybody", "no-key-is-needed-here")
    done = api.img2img(images=[image], mask_image=hole, width=image.width, height=image.height, prompt="")
    np.testing.assert_array_equal(np.asarray(done.image), np.asarray(Image.open(io.BytesIO(native))))
    smaller = api.img2img(images=[image], mask_image=hole, width=128, height=96)
    assert smaller.image.size == (128, 96)
    assert api.util_get_model_names() == [name for name in shipped if fills(name)]
    assert api.util_get_current_model() == "photos"


def test_krita_iopaint_gets_its_png(url: str, photo: bytes, mask: bytes, native: bytes, in_base64: InBase64) -> None:
    """The plugin sends data URLs and IOPaint's fields, and reads the reply as PNG."""
    head = "data:image/png;base64,"
    fields: dict[str, Any] = {"image": head + in_base64(photo), "mask": head + in_base64(mask)}
    fields |= {"hd_strategy": "Crop", "hd_strategy_crop_margin": 128, "sd_seed": 42, "prompt": ""}
    reply = httpx.post(f"{url}/api/v1/inpaint", json=fields, timeout=60)
    assert (reply.status_code, reply.content) == (200, native)
    empty = io.BytesIO()
    Image.new("L", Image.open(io.BytesIO(photo)).size).save(empty, "PNG")
    fields["mask"] = head + in_base64(empty.getvalue())
    assert httpx.post(f"{url}/api/v1/inpaint", json=fields, timeout=60).content == photo


def curl(*arguments: str | Path) -> bytes:
    done = subprocess.run(
        ["curl", "--silent", "--show-error", "--fail-with-body", *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout[:500], done.stderr)
    return done.stdout


@pytest.fixture
def files(tmp_path: Path, photo: bytes, mask: bytes, alpha_mask: bytes) -> dict[str, Path]:
    found = {"photo": photo, "mask": mask, "alpha": alpha_mask}
    for name, data in found.items():
        (tmp_path / f"{name}.png").write_bytes(data)
    return {name: tmp_path / f"{name}.png" for name in found}


def test_curl_edits_as_openai(url: str, files: dict[str, Path], native: bytes) -> None:
    parts = ["-F", f"image=@{files['photo']}", "-F", f"mask=@{files['alpha']}", "-F", "prompt="]
    assert base64.b64decode(json.loads(curl(f"{url}/v1/images/edits", *parts))["data"][0]["b64_json"]) == native


@pytest.mark.parametrize("api", ["openai", "iopaint", "open-inference", "automatic1111"])
def test_curl_sends_json(url: str, files: dict[str, Path], native: bytes, in_base64: InBase64, api: str) -> None:
    image, hole = (in_base64(files[name].read_bytes()) for name in ("photo", "mask"))
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [data]}
        for name, data in (("image", image), ("mask", hole))
    ]
    urls = {"images": [{"image_url": f"data:image/png;base64,{image}"}], "mask": {"image_url": hole}}
    path, body, found = {
        "openai": (
            "/v1/images/edits",
            {**urls, "prompt": "", "mask_mode": "white"},
            lambda reply: base64.b64decode(json.loads(reply)["data"][0]["b64_json"]),
        ),
        "iopaint": ("/api/v1/inpaint", {"image": image, "mask": hole}, lambda reply: reply),
        "open-inference": (
            "/v2/models/photos/infer",
            {"inputs": tensors},
            lambda reply: base64.b64decode(json.loads(reply)["outputs"][0]["data"][0]),
        ),
        "automatic1111": (
            "/sdapi/v1/img2img",
            {"init_images": [image], "mask": hole},
            lambda reply: base64.b64decode(json.loads(reply)["images"][0]),
        ),
    }[api]
    written = files["photo"].with_name("body.json")
    written.write_text(json.dumps(body))
    sent = ["-H", "Content-Type: application/json", "--data-binary", f"@{written}"]
    assert found(curl(f"{url}{path}", *sent)) == native
