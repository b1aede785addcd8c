"""KServe's clients, over gRPC and over HTTP."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from PIL import Image

Ask = Callable[[InferRequest], Awaitable[Any]]


def file_input(name: str, data: bytes) -> InferInput:
    tensor = InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([data], dtype=np.object_))
    return tensor


def pixel_input(name: str, data: bytes, mode: str) -> InferInput:
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    pixels = pixels.reshape(1, *pixels.shape[:2], -1)
    tensor = InferInput(name, list(pixels.shape), "UINT8")
    tensor.set_data_from_numpy(pixels)
    return tensor


def typed_input(name: str, data: bytes) -> InferInput:
    """Return an input whose file is in `contents`, the client's form without binary data."""
    return InferInput(name, [1], "BYTES", data=[data])


@pytest.fixture(params=["grpc", "http"])
def ask(request: pytest.FixtureRequest, url: str, grpc_address: str) -> Ask:
    """Send a request with one of the clients."""

    async def by_grpc(asked: InferRequest) -> Any:
        async with InferenceGRPCClient(grpc_address) as client:
            return await client.infer(asked)

    async def by_http(asked: InferRequest) -> Any:
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await client.infer(url, asked, model_name=asked.model_name)

    return by_grpc if request.param == "grpc" else by_http


def test_they_infer_with_files(ask: Ask, photo: bytes, mask: bytes, native: bytes) -> None:
    inputs = [file_input("image", photo), file_input("mask", mask)]
    response = asyncio.run(ask(InferRequest("photos", inputs, request_id="mine")))
    assert (response.model_name, response.id) == ("photos", "mine")
    (answered,) = response.outputs[0].as_numpy().tolist()
    # without binary_data_output HTTP answers in JSON; with it the REST client cannot read BYTES that are not UTF-8
    assert (answered if isinstance(answered, bytes) else base64.b64decode(answered)) == native


def test_they_infer_with_pixels(ask: Ask, photo: bytes, mask: bytes, native: bytes) -> None:
    inputs = [pixel_input("image", photo, "RGB"), pixel_input("mask", mask, "L")]
    response = asyncio.run(ask(InferRequest("photos", inputs, parameters={"binary_data_output": True})))
    np.testing.assert_array_equal(response.outputs[0].as_numpy(), np.asarray(Image.open(io.BytesIO(native)))[None])


def test_files_may_come_as_typed_contents(grpc_address: str, photo: bytes, mask: bytes, native: bytes) -> None:
    async def by_grpc() -> Any:
        async with InferenceGRPCClient(grpc_address) as client:
            return await client.infer(InferRequest("photos", [typed_input("image", photo), typed_input("mask", mask)]))

    assert asyncio.run(by_grpc()).outputs[0].as_numpy().tolist() == [native]


def test_health_is_found_by_both(url: str, grpc_address: str) -> None:
    async def asked() -> list[bool]:
        async with InferenceGRPCClient(grpc_address) as client:
            over_grpc = [
                await client.is_server_live(),
                await client.is_server_ready(),
                await client.is_model_ready("photos"),
            ]
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            over_http = [await client.is_server_live(url), await client.is_server_ready(url)]
            return [*over_grpc, *over_http, await client.is_model_ready(url, "photos")]

    assert asyncio.run(asked()) == [True] * 6


def test_errors_are_their_own(url: str, grpc_address: str, photo: bytes) -> None:
    lacking = InferRequest("photos", [file_input("image", photo)])

    async def by_grpc() -> Any:
        async with InferenceGRPCClient(grpc_address) as client:
            return await client.infer(lacking)

    async def by_http() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
            return await client.infer(url, lacking, model_name="photos")

    with pytest.raises(grpc.RpcError, match="'mask' is missing") as refused:
        asyncio.run(by_grpc())
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        asyncio.run(by_http())
