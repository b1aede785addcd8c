"""The names of the runtimes, apart from their code, so that a command line can list them without importing any."""

from typing import Literal

EngineChoice = Literal["auto", "trt", "inductor", "onnxrt-cuda", "openvino", "onnxrt", "fake"]
"""The values of `--engine`; `auto` selects the fastest runtime that works on this host."""

DeviceChoice = Literal["auto", "cpu"]
"""The values of `--device`: `auto` uses an NVIDIA GPU where there is one, `cpu` does not."""
