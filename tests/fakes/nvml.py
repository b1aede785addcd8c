"""A fake of the used part of NVML, with two GPUs; the second does not report its power."""

from __future__ import annotations

from dataclasses import dataclass


class NVMLError(Exception):
    pass


@dataclass
class Memory:
    used: int
    total: int


@dataclass
class Utilisation:
    gpu: int


class FakeNvml:
    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *, driver: bool = True) -> None:
        self.driver = driver
        self.lost: set[int] = set()
        """GPUs that have fallen off the bus."""

    def nvmlInit(self) -> None:  # noqa: N802 -- NVIDIA's name
        if not self.driver:
            raise NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if not self.driver:
            raise NVMLError("driver not loaded")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.lost:
            raise NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Utilisation:  # noqa: N802
        return Utilisation(50 + gpu)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Memory:  # noqa: N802
        return Memory(2**30, (80 + gpu) * 2**30)

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:  # noqa: N802
        if gpu:
            raise NVMLError("not supported")
        return 312_500

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:  # noqa: N802
        return 60 + gpu + sensor
