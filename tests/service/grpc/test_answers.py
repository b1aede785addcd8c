"""Each gRPC method answers the same as its HTTP counterpart."""

from __future__ import annotations

import io
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from grpc import Compression, StatusCode
from PIL import Image

from service.grpc.protocol import open_inference_pb2 as messages
from service.imaging.texture.patch_match import installed_kernel
from tests.serving.grpc_client import (
    GrpcClient,
    Input,
    Output,
    element,
    file_of,
    files_request,
    raw_request,
    response_in,
    with_parameters,
)
from tests.serving.local_server import Running


def read(client: GrpcClient, method: str, request: Any, kind: Any) -> Any:
    answered = client.call(method, request)
    assert answered.code is StatusCode.OK, answered
    assert answered.trailing["x-request-id"]
    return kind.FromString(answered.message)


def test_health_is_answered(client: GrpcClient) -> None:
    assert read(client, "ServerLive", messages.ServerLiveRequest(), messages.ServerLiveResponse).live
    assert read(client, "ServerReady", messages.ServerReadyRequest(), messages.ServerReadyResponse).ready
    named = messages.ModelReadyRequest(name="photos", version="1")
    assert read(client, "ModelReady", named, messages.ModelReadyResponse).ready


def test_descriptions_are_those_of_http(client: GrpcClient, server: Running) -> None:
    with server.client() as http:
        about = read(client, "ServerMetadata", b"", messages.ServerMetadataResponse)
        assert (about.name, about.version) == ("retouch", version("retouch"))
        model = read(
            client, "ModelMetadata", messages.ModelMetadataRequest(name="photos"), messages.ModelMetadataResponse
        )
        over_http = http.get("/v2/models/photos").json()
        assert MessageToDict(model) == {
            **over_http,
            **{part: [{**one, "shape": ["1"]} for one in over_http[part]] for part in ("inputs", "outputs")},
        }
        config = read(client, "ModelConfig", messages.ModelConfigRequest(name="photos"), messages.ModelConfigResponse)
        assert [one.name for one in config.config.input] == ["image", "mask"]
        assert (config.config.name, config.config.backend, config.config.max_batch_size) == ("photos", "retouch", 0)
        assert config.config.output[0].data_type == messages.TYPE_STRING
        listed = read(client, "RepositoryIndex", b"", messages.RepositoryIndexResponse)
        over_http = http.post("/v2/repository/index").json()
        assert [MessageToDict(one) | {"reason": ""} for one in listed.models] == over_http


def test_statistics_count_requests_of_all_apis(client: GrpcClient, photo: bytes, mask: bytes, native: bytes) -> None:
    assert native
    client.infer(files_request(photo, mask))
    asked = messages.ModelStatisticsRequest(name="photos")
    (one,) = read(client, "ModelStatistics", asked, messages.ModelStatisticsResponse).model_stats
    assert one.inference_count >= 2
    assert one.inference_stats.success.ns > 0
    every = read(client, "ModelStatistics", b"", messages.ModelStatisticsResponse).model_stats
    assert {model.name for model in every} == {"photos", "facades", "faces"}


def test_statistics_count_failures(client: GrpcClient, mask: bytes) -> None:
    def failures() -> int:
        asked = messages.ModelStatisticsRequest(name="photos")
        (one,) = read(client, "ModelStatistics", asked, messages.ModelStatisticsResponse).model_stats
        return int(one.inference_stats.fail.count)

    before = failures()
    assert client.call("ModelInfer", files_request(b"no picture", mask)).code is StatusCode.INVALID_ARGUMENT
    assert failures() == before + 1


def test_a_fill_of_files_is_that_of_v1_byte_by_byte(
    client: GrpcClient, photo: bytes, mask: bytes, native: bytes
) -> None:
    request = files_request(photo, mask, id="mine", model_version="1", outputs=[Output(name="output")])
    answered = client.call("ModelInfer", request, x_request_id="from-the-test")
    response = response_in(answered)
    assert (response.model_name, response.model_version, response.id) == ("photos", "1", "mine")
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("output", "BYTES", [1])
    assert file_of(answered) == native
    told = answered.trailing
    assert (told["x-request-id"], told["x-model"], told["x-batch-size"]) == ("from-the-test", "photos/1", "1")
    assert "infer;dur=" in told["server-timing"]
    assert told["location"].startswith("/v1/results/")


def test_files_may_come_as_typed_contents(client: GrpcClient, photo: bytes, mask: bytes, native: bytes) -> None:
    request = messages.ModelInferRequest(model_name="photos")
    for name, data in (("image", photo), ("mask", mask)):
        contents = messages.InferTensorContents(bytes_contents=[data])
        request.inputs.append(Input(name=name, datatype="BYTES", shape=[1], contents=contents))
    assert client.infer(request) == native


@pytest.mark.parametrize("compression", [Compression.Gzip, Compression.Deflate])
def test_a_message_may_be_compressed(
    client: GrpcClient, photo: bytes, mask: bytes, native: bytes, compression: Compression
) -> None:
    assert client.infer(files_request(photo, mask), compression=compression) == native


def test_pixels_are_answered_with_pixels(client: GrpcClient, photo: bytes, mask: bytes, native: bytes) -> None:
    image, hole = (np.asarray(Image.open(io.BytesIO(data))) for data in (photo, mask))
    pixels = {"image": ("UINT8", [1, *image.shape], image.tobytes()), "mask": ("UINT8", [1, 64, 64], hole.tobytes())}
    response = response_in(client.call("ModelInfer", raw_request(pixels)))
    (output,) = response.outputs
    assert (output.datatype, list(output.shape)) == ("UINT8", [1, 64, 64, 3])
    found = np.frombuffer(response.raw_output_contents[0], np.uint8).reshape(64, 64, 3)
    np.testing.assert_array_equal(found, np.asarray(Image.open(io.BytesIO(native))))


def test_parameters_are_options_whatever_their_type(client: GrpcClient, photo: bytes, mask: bytes) -> None:
    request = with_parameters(files_request(photo, mask), format="jpeg", quality=50, save=False, other=1.5)
    answered = client.call("ModelInfer", request)
    assert file_of(answered).startswith(b"\xff\xd8")
    assert "location" not in answered.trailing
    assert answered.trailing["x-ignored-fields"] == "other"


@pytest.mark.skipif(installed_kernel() is None, reason="Retouch was installed without a C++ compiler")
def test_copied_texture_is_a_parameter_and_is_reported(client: GrpcClient, photo: bytes, mask: bytes) -> None:
    plain = client.infer(files_request(photo, mask))
    textured = client.call("ModelInfer", with_parameters(files_request(photo, mask), texture="copied"))
    assert textured.trailing["x-texture"] == "copied"
    assert file_of(textured) != plain


def test_a_model_that_draws_says_its_seed_and_repeats_it(client: GrpcClient) -> None:
    request = messages.ModelInferRequest(model_name="faces")
    first = response_in(client.call("ModelInfer", with_parameters(request, count=2)))
    assert list(first.outputs[0].shape) == [2]
    seed = first.parameters["seed"].int64_param
    again = response_in(client.call("ModelInfer", with_parameters(request, count=2, seed=seed)))
    assert again.raw_output_contents == first.raw_output_contents


@pytest.mark.parametrize(
    ("request_of", "code", "text"),
    [
        (lambda good: good.__class__(model_name="nobodys"), StatusCode.NOT_FOUND, "no model 'nobodys'"),
        (lambda good: good.__class__(), StatusCode.NOT_FOUND, "no model"),
        (lambda good: good.__class__(model_name="photos", model_version="7"), StatusCode.NOT_FOUND, "photos/7"),
        (lambda good: good.__class__(model_name="photos"), StatusCode.INVALID_ARGUMENT, "'image' is missing"),
        (lambda good: with_parameters(good, timeout=2**63), StatusCode.INVALID_ARGUMENT, "microseconds"),
        (lambda good: with_parameters(good, timeout=-1), StatusCode.INVALID_ARGUMENT, "microseconds"),
        (lambda good: with_parameters(good, timeout=1.5), StatusCode.INVALID_ARGUMENT, "timeout: send a whole number"),
        (lambda good: with_parameters(good, priority=-1), StatusCode.INVALID_ARGUMENT, "priority"),
        (lambda good: with_parameters(good, samples=9), StatusCode.INVALID_ARGUMENT, "samples"),
        (lambda good: with_parameters(good, mask_mode="red"), StatusCode.INVALID_ARGUMENT, "mask_mode"),
        (lambda good: with_parameters(good, timeout=1), StatusCode.DEADLINE_EXCEEDED, "allow"),
    ],
)
def test_errors_are_statuses_with_our_message_and_code(
    client: GrpcClient, photo: bytes, mask: bytes, request_of: Any, code: StatusCode, text: str
) -> None:
    answered = client.call("ModelInfer", request_of(files_request(photo, mask)))
    assert answered.code is code, answered
    assert text in answered.details
    assert answered.trailing["x-error-code"]
    assert answered.trailing["x-request-id"]


def test_a_timeout_of_zero_is_none_and_any_priority_is_taken(client: GrpcClient, photo: bytes, mask: bytes) -> None:
    for values in ({"timeout": 0}, {"timeout": 60_000_000, "priority": 1}, {"priority": 99}, {"priority": 2**63}):
        assert client.infer(with_parameters(files_request(photo, mask), **values))


def test_an_empty_file_is_named(client: GrpcClient, mask: bytes) -> None:
    answered = client.call("ModelInfer", files_request(b"", mask))
    assert (answered.code, answered.trailing["x-error-code"]) == (StatusCode.INVALID_ARGUMENT, "empty_part")
    assert element(b"") == bytes(4)
