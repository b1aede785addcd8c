"""Inference requests, read without a server."""

from __future__ import annotations

import pytest

from engines.repository.versions import ModelStatus
from service.compat.open_inference.models import statistics
from service.compat.open_inference.requests import infer_request_of, priority_of, timeout_of
from service.core.errors import InvalidOption
from tests.service.compat.open_inference.infer_requests import LENGTH, as_binary


@pytest.mark.parametrize(
    ("level", "priority"), [(0, None), (1, 9), (2, 8), (5, 5), (9, 1), (10, 0), (11, 0), (2**64, 0)]
)
def test_a_smaller_level_is_a_higher_priority(level: int, priority: int | None) -> None:
    assert priority_of(level) == priority


def test_a_timeout_is_microseconds_up_to_a_day_and_none_without_one() -> None:
    assert (timeout_of(0), timeout_of(1_500_000), timeout_of(86_400_000_000)) == (None, 1.5, 86_400.0)
    for wrong in (-1, 86_400_000_001, 2**63):
        with pytest.raises(InvalidOption, match="microseconds"):
            timeout_of(wrong)


def test_binary_data_is_divided_in_the_order_of_the_inputs() -> None:
    tensors = {"a": ("UINT8", [1, 1, 2, 3], b"abcdef"), "b": ("UINT8", [1, 2, 1], b"gh")}
    body, headers = as_binary(tensors)
    length = int(headers[LENGTH])
    found = infer_request_of(bytearray(body[:length]), memoryview(body)[length:], max_pixels=4)
    assert [(one.name, one.data, one.shape) for one in found.tensors] == [
        ("a", b"abcdef", (1, 2, 3)),
        ("b", b"gh", (2, 1, 1)),
    ]
    assert found.binary_output


def test_statistics_add_up_the_endpoints_and_leave_out_failures() -> None:
    lines = "# TYPE retouch_request_duration_seconds histogram\n" + "".join(
        f'retouch_request_duration_seconds_{kind}{{endpoint="{endpoint}",model="m/1",code="{code}"}} {value}\n'
        for endpoint, code in (("/v1/inpaint", "200"), ("/v2", "200"), ("/v2", "500"))
        for kind, value in (("count", 2), ("sum", 0.5))
    )
    (found,) = statistics(lines, [ModelStatus("m", 1, "ready")])["model_stats"]
    assert (found["name"], found["version"], found["inference_count"]) == ("m", "1", 4)
    assert found["inference_stats"]["success"] == {"count": 4, "ns": 1_000_000_000}
