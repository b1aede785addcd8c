from __future__ import annotations

import re
from pathlib import Path

from service.telemetry.gpu_gauges import GpuGauges
from service.telemetry.metrics import Metrics
from tests.fakes.clock import Clock
from tests.fakes.nvml import FakeNvml

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"

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


def test_operations_md_lists_every_metric_of_the_server_and_no_other() -> None:
    metrics = Metrics()
    metrics.make_models_failing()
    series = re.findall(r"^# TYPE (retouch_\w+)", metrics.exposition().decode(), re.MULTILINE)
    served = {name for name in series if not name.endswith("_created")}  # which a server turns off
    served |= {family.name for family in GpuGauges(FakeNvml()).collect()}
    table = OPERATIONS.read_text("utf-8").partition("## Metrics\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(retouch_\w+)`", "".join(rows))) == sorted(served)


def test_the_time_of_a_models_last_batch_is_kept() -> None:
    clock = Clock(1_795_975_157.25)
    metrics = Metrics(now=clock)
    metrics.batch_done("photos/1", "cpu", 1, 0.1)
    (line,) = re.findall(r"^retouch_last_batch_timestamp_seconds.*$", metrics.exposition().decode(), re.MULTILINE)
    name, _, value = line.partition(" ")
    assert name == 'retouch_last_batch_timestamp_seconds{model="photos/1"}'
    assert float(value) == clock.now
