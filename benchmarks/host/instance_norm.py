"""Compares instance norm as one ONNX operator with the form that export writes: ms and error against FP64, on a CPU.

    python -m benchmarks.host.instance_norm [--ngf 64] [--side 256] [--runs 15] [--json instance_norm.json]

A pix2pix resnet_9blocks generator with random weights, under ONNX Runtime and OpenVINO (FP32 graph in FP32, FP16 graph
as each engine takes it), on a picture of noise and on a flat drawing. Runs are interleaved; the ratio is of medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
import torch
from torch import Tensor, nn

from export.generators import FAMILIES
from export.lowering import InstanceNorm32, to_half
from export.onnx_graph import write_graph

FORMS, PRECISIONS, ENGINES = ("operator", "as exported"), ("fp32", "fp16"), ("onnxrt", "openvino")
Run = Callable[[np.ndarray], np.ndarray]


class Operator(nn.Module):
    """The same norm in a form that torch's exporter writes as InstanceNormalization."""

    def __init__(self, norm: InstanceNorm32) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape and type."""
        norm = self.norm
        return nn.functional.instance_norm(x.float(), weight=norm.weight, bias=norm.bias, eps=norm.eps).to(x.dtype)


def with_operators(net: nn.Module) -> nn.Module:
    """Replace every norm of the lowered net by one operator, in place."""
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, InstanceNorm32):
                setattr(parent, name, Operator(child))
    return net


def write_graphs(net: nn.Module, options: Any, folder: Path) -> dict[tuple[str, str], Path]:
    """Write the graphs, by form and precision."""
    family, paths = FAMILIES["pix2pix"], {}
    for form in FORMS:
        for precision in PRECISIONS:
            lowered = family.lower(net, options)
            lowered = lowered if form == "as exported" else with_operators(lowered)
            path = paths[form, precision] = folder / f"{form}-{precision}.onnx"
            write_graph(to_half(lowered) if precision == "fp16" else lowered, family.interface(options), path)
    return paths


def opened(engine: str, path: Path, precision: str) -> Run:
    """Open the graph in an engine as the service does."""
    if engine == "onnxrt":
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda image: session.run(["output"], {"image": image})[0]
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32" if precision == "fp32" else "bf16"}
    compiled = openvino.Core().compile_model(str(path), "CPU", hints)
    return lambda image: compiled([image])[0]


def pictures(side: int) -> dict[str, np.ndarray]:
    """Make noise, and a picture of flat rectangles."""
    noise = np.random.default_rng(0).random((1, 3, side, side), np.float32)
    flat = np.full_like(noise, 0.3)
    flat[:, :, side // 3 : side // 2, side // 4 :] = 0.8
    flat[:, :, side // 8 : side // 4, side // 8 : side // 4] = 0.1
    return {"noise": noise, "flat": flat}


def timed(run: Run, image: np.ndarray) -> float:
    """Return the milliseconds of one run."""
    started = time.perf_counter()
    run(image)
    return (time.perf_counter() - started) * 1e3


def main() -> None:
    """Print a line for each engine and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ngf", type=int, default=64, help="channels of the first layer")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument("--runs", type=int, default=15, help="number of runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    family = FAMILIES["pix2pix"]
    options = family.options.model_validate({"net": "resnet_9blocks", "norm": "instance", "ngf": arguments.ngf})
    net, images, rows = family.build(options).eval(), pictures(arguments.side), []
    with tempfile.TemporaryDirectory() as folder:
        graphs = write_graphs(net, options, Path(folder))
        exact = family.wrap(net, options).double().eval()
        with torch.inference_mode():
            wanted = {name: exact(torch.from_numpy(image).double()).numpy() for name, image in images.items()}
        for engine in ENGINES:
            for precision in PRECISIONS:
                runs = {form: opened(engine, graphs[form, precision], precision) for form in FORMS}
                off = {
                    f: {n: float(np.abs(run(i) - wanted[n]).max()) for n, i in images.items()}
                    for f, run in runs.items()
                }
                ms: dict[str, list[float]] = {form: [] for form in FORMS}
                for _ in range(arguments.runs):
                    for form, run in runs.items():
                        ms[form].append(timed(run, images["noise"]))
                medians = {form: statistics.median(taken) for form, taken in ms.items()}
                ratio = statistics.median(b / a for a, b in zip(ms["operator"], ms["as exported"], strict=True))
                rows.append({"engine": engine, "precision": precision, "ms": medians, "ratio": ratio, "off": off})
                print(f"{engine} {precision}: {medians} ms, as exported / operator {ratio:.3f}, off {off}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
