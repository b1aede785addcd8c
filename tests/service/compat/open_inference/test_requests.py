"""The parser of inference requests in JSON."""

from __future__ import annotations

from service.compat.open_inference.requests import parse_infer_request
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
