"""Reads power, utilisation, temperature and memory through NVML while a block runs; nothing without an NVIDIA GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import mean
from typing import NamedTuple

import torch

_INTERVAL_S = 0.02


class Reading(NamedTuple):
    """One reading of the sensors."""

    power_w: float
    utilisation_percent: float
    """Share of NVML's sampling period in which a kernel ran."""
    temperature_c: float
    memory_gb: float
    """The device memory in use, by all processes, in 10⁹ bytes."""


Sensor = Callable[[], Reading]


class SensorReadings:
    """The readings taken during a block."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def means(self) -> dict[str, float]:
        """Return means of power and utilisation, the highest temperature and memory; empty without readings."""
        if not self.readings:
            return {}
        return {
            "mean_power_w": round(mean(reading.power_w for reading in self.readings), 1),
            "mean_utilisation_percent": round(mean(reading.utilisation_percent for reading in self.readings), 1),
            "highest_temperature_c": max(reading.temperature_c for reading in self.readings),
            "highest_device_memory_gb": round(max(reading.memory_gb for reading in self.readings), 3),
        }


@contextmanager
def read_sensors(read: Sensor | None) -> Iterator[SensorReadings]:
    """Read a sensor every 20 ms in a separate thread while the block runs; None reads nothing."""
    recorded, done = SensorReadings(), threading.Event()

    def poll() -> None:
        while read is not None and not done.wait(_INTERVAL_S):
            recorded.readings.append(read())

    thread = threading.Thread(target=poll, name="sensors", daemon=True)
    thread.start()
    try:
        yield recorded
    finally:
        done.set()
        thread.join()


def nvml_sensor(device: torch.device) -> Sensor | None:
    """Return a sensor for the device (found by UUID, because NVML counts all GPUs), or None without NVML."""
    if device.type != "cuda":
        return None
    try:
        import pynvml  # noqa: PLC0415 -- not on every host
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except (pynvml.NVMLError, AttributeError):
        return None

    def read() -> Reading:
        return Reading(
            pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            pynvml.nvmlDeviceGetMemoryInfo(handle).used / 1e9,
        )

    return read
