"""The parser of inference requests in JSON."""

from __future__ import annotations

import json

import pytest

from service.compat.open_inference.requests import parse_infer_request
from service.core.errors import InvalidRequest
from tests.service.compat.open_inference.infer_requests import LENGTH, as_binary


def test_binary_data_is_divided_in_the_order_of_the_inputs() -> None:
    tensors = {"a": ("UINT8", [1, 1, 2, 3], b"abcdef"), "b": ("UINT8", [1, 2, 1], b"gh")}
    body, headers = as_binary(tensors)
    length = int(headers[LENGTH])
    found = parse_infer_request(bytearray(body[:length]), memoryview(body)[length:], max_pixels=4)
    assert [(one.name, one.data, one.shape) for one in found.tensors] == [
        ("a", b"abcdef", (1, 2, 3)),
        ("b", b"gh", (2, 1, 1)),
    ]
    assert found.binary_output


@pytest.mark.parametrize("nested", [["AAAA"], [["AAAA"]]])
def test_a_file_may_be_nested_as_its_shape_is(nested: list[object]) -> None:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1, 1], "data": nested}
    found = parse_infer_request(bytearray(json.dumps({"inputs": [tensor]}).encode()), memoryview(b""), max_pixels=4)
    assert found.tensors[0].data == b"\0\0\0"


@pytest.mark.parametrize("data", [[[]], [[["AAAA"]]], [[["AAAA", "AAAA"]]], [[["AAAA"], ["AAAA"]]], [[7]], [{}]])
def test_anything_but_one_nested_file_is_refused(data: list[object]) -> None:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": data}
    with pytest.raises(InvalidRequest, match=r"send (one|the) file in base64"):
        parse_infer_request(bytearray(json.dumps({"inputs": [tensor]}).encode()), memoryview(b""), max_pixels=4)


@pytest.mark.parametrize("values", [3, 30_000])
def test_pixels_in_json_are_refused_with_the_way_to_send_them(values: int) -> None:
    tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 1, values // 3, 3], "data": [0] * values}
    with pytest.raises(InvalidRequest, match="UINT8 as binary data, with binary_data_size"):
        parse_infer_request(bytearray(json.dumps({"inputs": [tensor]}).encode()), memoryview(b""), max_pixels=10**6)
