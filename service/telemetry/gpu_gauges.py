"""Gauges of the GPUs, read from NVIDIA's management library (NVML) at each scrape.

They are part of the server's metrics, so no separate exporter is needed. They are absent on a host without a GPU or
without the package nvidia-ml-py (extra `gpu`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = structlog.get_logger(__name__)

_GAUGES: dict[str, tuple[str, Callable[[Any, Any], float]]] = {
    "retouch_gpu_utilisation_ratio": (
        "Fraction of NVML's last sampling period in which a kernel ran, 0 to 1",
        lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    ),
    "retouch_gpu_memory_used_bytes": (
        "Bytes of GPU memory in use, by all processes",
        lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    ),
    "retouch_gpu_memory_total_bytes": (
        "Bytes of GPU memory, in use or not",
        lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
    ),
    "retouch_gpu_power_watts": (
        "Power that the GPU draws, in watts",
        lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    ),
    "retouch_gpu_temperature_celsius": (
        "Temperature of the GPU's core, in degrees Celsius",
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
}


class GpuGauges(Collector):
    """Collector of the gauges of all GPUs that this process can see."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def collect(self) -> Iterable[Metric]:
        """Read the gauges; values that a GPU does not report, such as power on some, are left out."""
        nvml, gpus = self._nvml, dict(self._gpus())
        for name, (documentation, read) in _GAUGES.items():
            family = GaugeMetricFamily(name, documentation, labels=["gpu"])
            for index, gpu in gpus.items():
                with suppress(nvml.NVMLError):
                    family.add_metric([str(index)], read(nvml, gpu))
            yield family

    def _gpus(self) -> Iterator[tuple[int, Any]]:
        """Yield the index and the NVML handle of each GPU that has a handle."""
        nvml, count = self._nvml, 0
        with suppress(nvml.NVMLError):
            count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            with suppress(nvml.NVMLError):
                yield index, nvml.nvmlDeviceGetHandleByIndex(index)


def add_gpu_gauges(registry: CollectorRegistry) -> bool:
    """Register the gauges of the GPUs; returns False if NVML is not installed or does not start."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return False
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:  # no driver, or it does not answer
        log.debug("no GPU metrics", reason=str(error))
        return False
    registry.register(GpuGauges(nvml))
    return True
