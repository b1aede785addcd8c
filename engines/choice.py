"""The names of the runtimes, apart from their code, so that a command line can list them without loading any."""

from typing import Literal

EngineChoice = Literal["auto", "trt", "inductor", "onnxrt-cuda", "openvino", "onnxrt", "fake"]
"""What an operator may ask for; `auto` takes the best that works here."""
