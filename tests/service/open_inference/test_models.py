"""Descriptions of models in the Open Inference Protocol."""

from __future__ import annotations

from engines.repository.versions import ModelStatus
from service.open_inference.models import statistics


def test_statistics_add_up_the_endpoints_and_count_failures_apart() -> None:
    lines = "# TYPE retouch_request_duration_seconds histogram\n" + "".join(
        f'retouch_request_duration_seconds_{kind}{{endpoint="{endpoint}",model="m/1",code="{code}"}} {value}\n'
        for endpoint, code in (("/v1/inpaint", "200"), ("/v2", "200"), ("/v2", "500"), ("/v1/inpaint", "499"))
        for kind, value in (("count", 2), ("sum", 0.5))
    )
    (found,) = statistics(lines.encode(), [ModelStatus("m", 1, "ready")])["model_stats"]
    assert (found["name"], found["version"], found["inference_count"]) == ("m", "1", 4)
    assert found["inference_stats"]["success"] == {"count": 4, "ns": 1_000_000_000}
    assert found["inference_stats"]["fail"] == {"count": 4, "ns": 1_000_000_000}, (
        "also of clients that left, as in Triton"
    )


def test_statistics_tell_the_last_inference_in_milliseconds_and_zero_before_the_first() -> None:
    lines = (
        "# TYPE retouch_last_batch_timestamp_seconds gauge\n"
        'retouch_last_batch_timestamp_seconds{model="m/1"} 1795975157.25\n'
    )
    models = [ModelStatus("m", version, "ready") for version in (1, 2)]
    found = statistics(lines.encode(), models)["model_stats"]
    assert [one["last_inference"] for one in found] == [1_795_975_157_250, 0]
