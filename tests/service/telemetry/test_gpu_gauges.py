"""Gauges of GPUs, on a fake NVML."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from service.telemetry.gpu_gauges import add_gpu_gauges
from service.telemetry.metrics import Metrics, combined_registry
from tests.fakes.nvml import FakeNvml


def test_every_gpu_is_read_when_it_is_asked_for_and_what_it_does_not_tell_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    registry = CollectorRegistry()
    assert add_gpu_gauges(registry)
    text = generate_latest(registry).decode()
    assert 'retouch_gpu_utilisation_ratio{gpu="0"} 0.5' in text
    assert 'retouch_gpu_memory_total_bytes{gpu="1"} 8.6973087744e+10' in text
    assert 'retouch_gpu_power_watts{gpu="0"} 312.5' in text
    assert 'retouch_gpu_power_watts{gpu="1"}' not in text
    assert 'retouch_gpu_temperature_celsius{gpu="1"} 61.0' in text


def test_a_lost_gpu_is_left_out_and_the_others_keep_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, registry = FakeNvml(), CollectorRegistry()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert add_gpu_gauges(registry)
    nvml.lost.add(0)
    text = generate_latest(registry).decode()
    assert 'gpu="0"' not in text
    assert 'retouch_gpu_temperature_celsius{gpu="1"} 61.0' in text


def test_a_driver_that_disappears_removes_only_its_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, registry = FakeNvml(), CollectorRegistry()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    Gauge("retouch_ready", "Beside them", registry=registry).set(1)
    assert add_gpu_gauges(registry)
    nvml.driver = False
    text = generate_latest(registry).decode()
    assert "retouch_ready 1.0" in text
    assert 'gpu="' not in text


@pytest.mark.parametrize("module", [None, FakeNvml(driver=False)])
def test_without_the_package_or_a_driver_there_are_none_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, module: FakeNvml | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    registry = CollectorRegistry()
    assert not add_gpu_gauges(registry)
    assert generate_latest(registry) == b""


def test_a_server_of_several_processes_shows_them_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert 'retouch_gpu_power_watts{gpu="0"} 312.5' in generate_latest(combined_registry(str(tmp_path))).decode()
    assert 'retouch_gpu_power_watts{gpu="0"} 312.5' in Metrics().exposition().decode()
