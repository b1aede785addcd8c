"""tritonclient over HTTP."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from PIL import Image
from tritonclient.utils import InferenceServerException


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with triton.InferenceServerClient(url.removeprefix("http://"), network_timeout=120.0) as client:
        yield client


def file_input(name: str, data: bytes, *, binary: bool = True) -> Any:
    tensor = triton.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([data], dtype=np.object_), binary_data=binary)
    return tensor


def pixel_input(name: str, data: bytes, mode: str) -> Any:
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    pixels = pixels.reshape(1, *pixels.shape[:2], -1)
    tensor = triton.InferInput(name, list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels)
    return tensor


def test_it_finds_the_server_and_its_models(client: Any, shipped: list[str]) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("photos")
    assert not client.is_model_ready("nobodys")
    assert client.get_server_metadata()["name"] == "retouch"
    assert [one["name"] for one in client.get_model_metadata("photos")["inputs"]] == ["image", "mask"]
    assert client.get_model_config("photos")["max_batch_size"] == 0
    assert {one["name"] for one in client.get_model_repository_index()} == {*shipped}


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_it_infers_with_files(client: Any, photo: bytes, mask: bytes, native: bytes, packed: str | None) -> None:
    inputs = [file_input("image", photo), file_input("mask", mask)]
    wanted = [triton.InferRequestedOutput("output", binary_data=True)]
    options: dict[str, Any] = {"request_compression_algorithm": packed, "response_compression_algorithm": packed}
    result = client.infer("photos", inputs, outputs=wanted, priority=1, timeout=60_000_000, **options)
    assert result.as_numpy("output").tolist() == [native]
    assert client.infer("photos", inputs, request_id="mine").get_response()["id"] == "mine"


def test_it_infers_with_pixels(client: Any, photo: bytes, mask: bytes, native: bytes) -> None:
    result = client.infer("photos", [pixel_input("image", photo, "RGB"), pixel_input("mask", mask, "L")])
    filled = np.asarray(Image.open(io.BytesIO(native)))
    np.testing.assert_array_equal(result.as_numpy("output"), filled[None])


def test_it_infers_asynchronously(client: Any, photo: bytes, mask: bytes, native: bytes) -> None:
    waiting = client.async_infer("photos", [file_input("image", photo), file_input("mask", mask)])
    assert waiting.get_result().as_numpy("output").tolist() == [native]


def test_it_counts_what_was_computed(client: Any, native: bytes) -> None:
    statistics = client.get_inference_statistics("photos")["model_stats"][0]
    assert statistics["inference_count"] >= 1
    assert statistics["inference_stats"]["success"]["ns"] > 0


def test_it_raises_its_own_errors(client: Any, photo: bytes, mask: bytes) -> None:
    with pytest.raises(InferenceServerException, match="no model") as missing:
        client.infer("nobodys", [file_input("image", photo)])
    assert "404" in str(missing.value.status())
    with pytest.raises(InferenceServerException, match="'mask' is missing"):
        client.infer("photos", [file_input("image", photo)])
    with pytest.raises(InferenceServerException, match=r"deadline|allowed"):
        client.infer("photos", [file_input("image", photo), file_input("mask", mask)], timeout=1)
