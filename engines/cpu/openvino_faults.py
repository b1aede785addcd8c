"""Graphs that OpenVINO cannot compile in bf16 although the processor has it."""

from __future__ import annotations

from typing import Any

_MAX_CHANNELS = 16
"""FP32 channels in a vector of 512 bits; with more channels oneDNN takes another path, which terminates."""
_MAX_KERNEL_WIDTH = 14


def endless_in_bf16(model: Any) -> str:
    """Return the name of a layer that OpenVINO never finishes compiling in bf16; empty if there is none.

    OpenVINO 2026.4.1 (oneDNN, `brgconv_avx512_dw_bf16`) loops for ever over a depthwise convolution of 2 to 16 channels
    whose kernel is 15 or more pixels wide; height does not matter. Seen on an AMD EPYC with avx512_bf16.

    Args:
        model: an `openvino.Model`.
    """
    for operation in model.get_ops():
        if operation.get_type_name() != "GroupConvolution":
            continue
        filters = operation.input(1).get_partial_shape()  # groups, outputs per group, inputs per group, kernel sizes
        if not filters.is_static:
            continue
        groups, outputs, inputs, *kernel = filters.to_shape()
        if outputs == inputs == 1 and groups <= _MAX_CHANNELS and kernel[-1] > _MAX_KERNEL_WIDTH:
            return str(operation.get_friendly_name())
    return ""
