"""The port of metrics has all series, whatever a scraper asks for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.mmap_dict import mmap_key

from service.telemetry.metric_files import MetricFile
from service.telemetry.metrics import Metrics, combined_registry
from service.telemetry.metrics_port import serve_metrics
from tests.serving.ports import free_port


def registry_of(processes: str, folder: Path) -> CollectorRegistry:
    if processes == "one":
        return Metrics().registry
    with closing(MetricFile(f"{folder}/counter_1.db")) as file:
        key: str = mmap_key("retouch_cancelled", "retouch_cancelled_total", [], [], "left")  # type: ignore[no-untyped-call]
        file.write_value(key, 0.0, 0.0)
    return combined_registry(str(folder))


@pytest.mark.parametrize("processes", ["one", "several"])
@pytest.mark.parametrize("query", ["name[]=retouch_cancelled_total", "name[]=retouch_cancelled", "name[]=up", "x=1"])
def test_a_scraper_that_asks_for_some_series_gets_all_of_them(tmp_path: Path, processes: str, query: str) -> None:
    port = free_port()
    serve_metrics("127.0.0.1", port, registry_of(processes, tmp_path))
    reply = httpx.get(f"http://127.0.0.1:{port}/metrics?{query}")
    assert reply.status_code == 200
    assert "retouch_cancelled_total 0.0" in reply.text
