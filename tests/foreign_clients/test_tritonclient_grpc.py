"""tritonclient over gRPC."""

from __future__ import annotations

import io
from collections.abc import Iterator
from threading import Event
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from PIL import Image
from tritonclient.utils import InferenceServerException


@pytest.fixture
def client(grpc_address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(grpc_address) as client:
        yield client


def file_input(name: str, data: bytes) -> Any:
    tensor = triton.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([data], dtype=np.object_))
    return tensor


def pixel_input(name: str, data: bytes, mode: str) -> Any:
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    pixels = pixels.reshape(1, *pixels.shape[:2], -1)
    tensor = triton.InferInput(name, list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels)
    return tensor


@pytest.fixture
def inputs(photo: bytes, mask: bytes) -> list[Any]:
    return [file_input("image", photo), file_input("mask", mask)]


def test_it_finds_the_server_and_its_models(client: Any, shipped: list[str]) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("photos")
    with pytest.raises(InferenceServerException, match="no model"):
        client.is_model_ready("nobodys")
    assert client.get_server_metadata().name == "retouch"
    assert [one.name for one in client.get_model_metadata("photos").inputs] == ["image", "mask"]
    config = client.get_model_config("photos").config
    assert (config.name, config.max_batch_size, [one.name for one in config.input]) == ("photos", 0, ["image", "mask"])
    assert {one.name for one in client.get_model_repository_index().models} == {*shipped}


@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_it_infers_with_files(client: Any, inputs: list[Any], native: bytes, packed: str | None) -> None:
    wanted = [triton.InferRequestedOutput("output")]
    options: dict[str, Any] = {"priority": 1, "timeout": 60_000_000, "compression_algorithm": packed}
    result = client.infer("photos", inputs, outputs=wanted, client_timeout=60, **options)
    assert result.as_numpy("output").tolist() == [native]
    assert client.infer("photos", inputs, request_id="mine").get_response().id == "mine"


def test_it_infers_with_pixels(client: Any, photo: bytes, mask: bytes, native: bytes) -> None:
    result = client.infer("photos", [pixel_input("image", photo, "RGB"), pixel_input("mask", mask, "L")])
    filled = np.asarray(Image.open(io.BytesIO(native)))
    np.testing.assert_array_equal(result.as_numpy("output"), filled[None])


def test_it_infers_asynchronously(client: Any, inputs: list[Any], native: bytes) -> None:
    answered, done = [], Event()

    def keep(result: Any, error: Any) -> None:
        answered.append((result, error))
        done.set()

    client.async_infer("photos", inputs, keep)
    assert done.wait(60)
    ((result, error),) = answered
    assert error is None
    assert result.as_numpy("output").tolist() == [native]


def test_it_counts_what_was_computed(client: Any, native: bytes) -> None:
    (statistics,) = client.get_inference_statistics("photos").model_stats
    assert statistics.inference_count >= 1
    assert statistics.inference_stats.success.ns > 0


def test_it_raises_its_own_errors(client: Any, photo: bytes, inputs: list[Any]) -> None:
    with pytest.raises(InferenceServerException, match="no model") as missing:
        client.infer("nobodys", inputs)
    assert "NOT_FOUND" in str(missing.value.status())
    with pytest.raises(InferenceServerException, match="'mask' is missing"):
        client.infer("photos", [file_input("image", photo)])
    with pytest.raises(InferenceServerException, match=r"deadline|allowed"):
        client.infer("photos", inputs, timeout=1)
    with pytest.raises(InferenceServerException, match=r"(?i)deadline"):  # from client or server, whichever is first
        client.infer("photos", inputs, client_timeout=0.0001)
    with pytest.raises(InferenceServerException, match="no method"):
        client.load_model("photos")
