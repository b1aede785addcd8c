"""Hostile messages, parsed without a server: each is refused as invalid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import ServiceError
from service.grpc.protocol.open_inference_pb2 import InferTensorContents, ModelInferRequest
from service.grpc.requests import parse_named_request
from service.grpc.wire import length_delimited
from tests.serving.bad_request import MASK, PHOTO
from tests.serving.grpc_client import Input, Output, element, files_request, raw_request, with_parameters

PIXELS = 10_000
IMAGE, HOLE = ("BYTES", [1], element(PHOTO)), ("BYTES", [1], element(MASK))


def typed(name: str, *files: bytes, datatype: str = "BYTES", shape: tuple[int, ...] = (1,)) -> Any:
    return Input(name=name, datatype=datatype, shape=shape, contents=InferTensorContents(bytes_contents=files))


def with_typed_numbers(number: int) -> bytes:
    """Return a request whose image is sent as typed contents, in the field with this number."""
    contents = length_delimited(number, 8) + bytes(8)
    entry = Input(name="image", datatype="UINT8", shape=[1, 2, 2, 1]).SerializeToString()
    entry += length_delimited(5, len(contents)) + contents
    return length_delimited(5, len(entry)) + entry


def wrong_tensors() -> Iterator[bytes]:
    """Requests with an input of wrong shape, datatype or data."""
    shapes: tuple[list[int], ...] = (
        *([], [2], [2**31], [-1], [0], [1, 64, 64, 3], [1] * 5_000),
        *([2**63 - 1], [-(2**63)]),
    )
    for shape in shapes:
        yield raw_request({"image": ("BYTES", shape, element(PHOTO))}).SerializeToString()
    for shape in (
        *([1, 2**30, 1, 1], [1, 2**15, 2**15, 1], [1, 2**62, 2**62, 3], [1, -2, -2, 3], [1, 2**63 - 1, 1, 3]),
        *([2, 2, 2, 3], [1, 0, 2, 3], [1, 2, 2, 2], [2, 2, 3], [], [1], [1, 1, 1, 1, 1], [1, 2, 2, 4]),
        [1, 1024, 1024, 1024],
    ):
        yield raw_request({"image": ("UINT8", shape, bytes(12))}).SerializeToString()
    for datatype in ("FP32", "", "bytes", "BYTES\0", "B" * 10_000):
        yield raw_request({"image": (datatype, [1], element(PHOTO))}).SerializeToString()
    for data in (b"", b"abc", element(b""), element(PHOTO)[:-1], element(PHOTO) * 2, b"\xff" * 8):
        yield raw_request({"image": ("BYTES", [1], data)}).SerializeToString()


def wrong_contents() -> Iterator[bytes]:
    """Requests whose data comes twice, not at all, for another number of inputs, or as typed contents."""
    for raw in ([], [IMAGE[2]], [IMAGE[2]] * 3):  # the request has two inputs
        both = files_request(PHOTO, MASK)
        del both.raw_input_contents[:]
        both.raw_input_contents.extend(raw)
        yield both.SerializeToString()
    yield ModelInferRequest(raw_input_contents=[b"abc"]).SerializeToString()
    twice = files_request(PHOTO, MASK)
    twice.inputs[0].contents.bytes_contents.append(PHOTO)
    yield twice.SerializeToString()
    yield ModelInferRequest(inputs=[typed("image", PHOTO, PHOTO)]).SerializeToString()
    yield ModelInferRequest(inputs=[typed("image", b"")]).SerializeToString()
    yield ModelInferRequest(inputs=[typed("image", datatype="UINT8", shape=(1, 1, 1, 1))]).SerializeToString()
    yield from (with_typed_numbers(number) for number in (1, 2, 3, 4, 5, 6, 7, 9))
    repeated = raw_request({"image": IMAGE})
    repeated.inputs.append(repeated.inputs[0])
    repeated.raw_input_contents.append(IMAGE[2])
    yield repeated.SerializeToString()


def wrong_outputs() -> Iterator[bytes]:
    """Requests whose outputs or parameters are wrong."""
    for outputs in ([Output(name="other")], [Output(name="output")] * 2, [Output()]):
        yield files_request(PHOTO, MASK, outputs=outputs).SerializeToString()
    classified, shared = Output(name="output"), Output(name="output")
    classified.parameters["classification"].int64_param = 3
    shared.parameters["shared_memory_region"].string_param = "r"
    yield files_request(PHOTO, MASK, outputs=[classified]).SerializeToString()
    yield files_request(PHOTO, MASK, outputs=[shared]).SerializeToString()
    in_shared = files_request(PHOTO, MASK)
    in_shared.inputs[0].parameters["shared_memory_region"].string_param = "r"
    yield in_shared.SerializeToString()
    for value in (-1, 2**63, 2**64 - 1, 1e300, float("nan"), "soon", "١", "9" * 400, True):
        yield with_parameters(files_request(PHOTO, MASK), timeout=value).SerializeToString()
    for wrong in (-1, 1.5, "x"):
        yield with_parameters(files_request(PHOTO, MASK), priority=wrong).SerializeToString()
    yield b"\x0a\x02\xff\xfe"  # a name that is not UTF-8


WRONG = (*wrong_tensors(), *wrong_contents(), *wrong_outputs())


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_request_is_the_clients_fault(number: int) -> None:
    with pytest.raises(ServiceError) as refused:
        parse_named_request(WRONG[number], PIXELS)
    assert 400 <= refused.value.status < 500
    assert len(str(refused.value)) < 500


def test_a_right_request_is_read() -> None:
    named = parse_named_request(files_request(PHOTO, MASK, model_version="2", id="me").SerializeToString(), PIXELS)
    assert (named.model, named.version, named.request.id) == ("photos", "2", "me")
    assert [tensor.data for tensor in named.request.tensors] == [PHOTO, MASK]
    assert (named.request.timeout_s, named.request.priority, named.request.binary_output) == (None, None, True)


@given(st.data())
@settings(max_examples=300)
def test_a_message_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    request = with_parameters(files_request(b"file", b"mask"), timeout=5, format="png")
    message = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(message)))
    for changed in (bytes(message), bytes(message[:cut])):
        assert status_of_reading(changed) < 500


def status_of_reading(message: bytes) -> int:
    try:
        parse_named_request(message, PIXELS)
    except ServiceError as error:
        return error.status
    return 200
