from __future__ import annotations

from service.telemetry.metrics import Metrics

PHOTOS = ("photos/1", "openvino", "bf16")
INT8 = ("photos/2", "openvino", "int8")


def engines(metrics: Metrics) -> dict[str, str]:
    lines = [line for line in metrics.exposition().decode().splitlines() if line.startswith("retouch_model_engine{")]
    return dict(line.split("} ") for line in lines)


def test_each_loaded_version_tells_engine_and_precision_and_a_removed_one_is_zero() -> None:
    metrics = Metrics()
    assert engines(metrics) == {}
    metrics.models_loaded(frozenset({PHOTOS}))
    metrics.models_loaded(frozenset({PHOTOS, INT8}))
    labels = 'retouch_model_engine{engine="openvino",model="photos/%d",precision="%s"'
    assert engines(metrics) == {labels % (1, "bf16"): "1.0", labels % (2, "int8"): "1.0"}
    metrics.models_loaded(frozenset({INT8}))
    assert engines(metrics) == {labels % (1, "bf16"): "0.0", labels % (2, "int8"): "1.0"}
