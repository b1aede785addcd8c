"""Splitting serialised requests before protobuf parses them."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import InvalidRequest, TooLarge
from service.grpc.protocol.open_inference_pb2 import InferTensorContents, ModelInferRequest
from service.grpc.wire import MAX_HEAD_BYTES, length_delimited, split_request

Input = ModelInferRequest.InferInputTensor
_TEXTS, _FILES = st.text(max_size=20), st.lists(st.binary(max_size=300), max_size=3)


@st.composite
def inputs(draw: st.DrawFn) -> ModelInferRequest.InferInputTensor:
    made = Input(name=draw(_TEXTS), datatype=draw(_TEXTS), shape=draw(st.lists(st.integers(-(2**63), 2**63 - 1))))
    for name in draw(st.lists(_TEXTS, max_size=3)):
        made.parameters[name].int64_param = draw(st.integers(-(2**63), 2**63 - 1))
    if draw(st.booleans()):
        made.contents.CopyFrom(InferTensorContents(bytes_contents=draw(_FILES)))
    return made


@given(st.lists(inputs(), max_size=4), _FILES, _TEXTS, _TEXTS)
@settings(max_examples=100)
def test_nothing_is_lost_or_changed(tensors: list, raw: list[bytes], model: str, request_id: str) -> None:
    whole = ModelInferRequest(model_name=model, id=request_id, inputs=tensors, raw_input_contents=raw)
    parts = split_request(whole.SerializeToString())
    head = ModelInferRequest.FromString(bytes(parts.head))
    assert [bytes(one) for one in parts.raw] == raw
    assert [[bytes(file) for file in files] for files in parts.files] == [
        list(tensor.contents.bytes_contents) for tensor in tensors
    ]
    assert not parts.numbers
    del whole.raw_input_contents[:]
    for tensor in whole.inputs:
        tensor.ClearField("contents")
    assert head == whole


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_any_bytes_are_divided_or_refused(data: bytes) -> None:
    with suppress(InvalidRequest, TooLarge):
        split_request(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",  # a group
        b"\x07",  # a wire type that does not exist
        b"\x00\x01",  # field 0
        b"\x3a\x05abc",  # shorter than its length says
        b"\x3a" + b"\xff" * 9 + b"\x01",  # 2^64 - 1 bytes
        b"\x08" + b"\xff" * 11,  # a varint without an end
        b"\x3a",
        b"\x2a\x02\x2a\x09",  # an input whose contents are cut off
        b"\x09abc",
    ],
)
def test_what_is_not_in_the_wire_format_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        split_request(data)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x2a\x00" * 2**20,  # inputs
        b"\x3a\x00" * 2**20,  # raw contents
        b"\x2a" + b"\x80\x80\x80\x01" + b"\x2a\x00" * 2**20,  # contents of one input
        length_delimited(5, 2**21 + 5) + length_delimited(5, 2**21) + b"\x42\x00" * 2**20,  # files of one input
        b"\x22\x00" * 2**20,  # parameters
        length_delimited(5, 2**20) + b"\x1a\x00" * 2**19,  # shapes
        length_delimited(1, 2**26) + bytes(2**26),  # a name
        length_delimited(5, 2**26 + 5) + length_delimited(3, 2**26) + bytes(2**26),  # one shape
        b"\x78\x01" * 2**20,  # unknown fields
    ],
)
def test_many_or_large_parts_are_refused_at_once(bomb: bytes) -> None:
    began = time.process_time()
    with pytest.raises((TooLarge, InvalidRequest)):
        split_request(bomb)
    assert time.process_time() - began < 0.5


def test_typed_contents_that_are_numbers_are_noticed() -> None:
    contents = length_delimited(4, 3) + b"\x01\x02\x03"  # uint_contents, which are not in our messages
    data = length_delimited(5, 2 + len(contents)) + length_delimited(5, len(contents)) + contents
    assert split_request(data).numbers == {0}
    assert len(split_request(data).head) < MAX_HEAD_BYTES
