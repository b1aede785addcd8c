"""Measures how bf16 in OpenVINO on a CPU changes fills: for the whole net, and with parts of it kept in FP32.

    .venv/bin/python -m benchmarks.host.bf16_mixes models/NAME/VERSION [--side 256] [--rounds 5] [--threads 2]

Differences from the clamped outputs of the same graph in FP32 are in grey levels (of 255), inside the masks of three
photographs and beyond the seam. ONNX Runtime runs the model for comparison. In every round each variant computes one
picture; times are medians over rounds, and ratios are taken within a round. Shares of a net are shares of its
multiplications, in the order of computation.

A node attribute, `DisablePrecisionConversion`, which OpenVINO's plugins set and its IR files contain, keeps parts in
FP32. It is not documented, so the service does not use it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from xml.etree import ElementTree as ET

import cv2
import numpy as np
import onnxruntime
import openvino
from numpy.typing import NDArray

from benchmarks.peers.iopaint_side_by_side import pictures
from engines.manifest import ONNX_FILE
from service.imaging.pasting.areas import FEATHER

_PRODUCTS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul")
_NO_COMPUTATION = ("Const", "Parameter", "Result")
Ids = set[str]
Outputs = list[NDArray[np.float32]]
Feed = dict[str, NDArray[np.float32]]
Run = Callable[[Feed], NDArray[np.float32]]


class Graph:
    """A model at one size, as OpenVINO's IR, whose nodes can be kept in FP32."""

    def __init__(self, directory: Path, side: int, scratch: Path) -> None:
        self._core = openvino.Core()
        model = self._core.read_model(str(directory / ONNX_FILE))
        model.reshape({"image": [1, 3, side, side], "mask": [1, 1, side, side]})
        openvino.save_model(model, str(scratch / "graph.xml"), compress_to_fp16=False)
        self._root = ET.parse(scratch / "graph.xml").getroot()
        self._weights = openvino.Tensor(np.fromfile(scratch / "graph.bin", np.uint8))
        self._layers = list(self._root.iterfind("layers/layer"))
        self._next: dict[str, list[str]] = {}
        for edge in self._root.iterfind("edges/edge"):
            self._next.setdefault(edge.attrib["from-layer"], []).append(edge.attrib["to-layer"])
        self.products = {layer.attrib["id"]: _multiplications(layer) for layer in self._layers if _is_product(layer)}

    def of_type(self, *types: str) -> Ids:
        """Return the nodes of these types."""
        return {layer.attrib["id"] for layer in self._layers if layer.attrib["type"] in types}

    def elementwise(self) -> Ids:
        """Return the nodes that compute, except for convolutions of several channels and matrix products."""
        computing = {layer.attrib["id"] for layer in self._layers if layer.attrib["type"] not in _NO_COMPUTATION}
        return computing - (set(self.products) - self.of_type("GroupConvolution"))

    def share(self, share: float, *, last: bool = False) -> Ids:
        """Return the first or last products with this share of all multiplications, with the nodes that follow them."""
        chosen: Ids = set()
        for node in reversed(self.products) if last else self.products:
            if sum(self.products[one] for one in chosen) >= share * sum(self.products.values()):
                break
            chosen.add(node)
        return self.with_followers(chosen)

    def with_followers(self, nodes: Ids) -> Ids:
        """Return `nodes` and the nodes that compute on their results, up to the next products."""
        found, left = set(nodes), list(nodes)
        while left:
            further = set(self._next.get(left.pop(), ())) - set(self.products) - found
            found |= further
            left += further
        return found

    def runner(self, precision: str, in_fp32: Ids, threads: int) -> Run:
        """Compile the graph in a precision, with the nodes `in_fp32` in FP32."""
        root = ET.fromstring(ET.tostring(self._root))
        for layer in root.iterfind("layers/layer"):
            if layer.attrib["id"] in in_fp32:
                info = layer.find("rt_info")
                info = ET.SubElement(layer, "rt_info") if info is None else info
                kept = {"name": "DisablePrecisionConversion", "version": "0", "value": "dynamic:f16"}
                ET.SubElement(info, "attribute", kept)
        config = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
        model = self._core.read_model(ET.tostring(root), self._weights)
        compiled = self._core.compile_model(model, "CPU", {**config, "PERFORMANCE_HINT": "LATENCY"})
        request = compiled.create_infer_request()
        return lambda feed: np.array(request.infer(feed)[0])


def _is_product(layer: ET.Element) -> bool:
    return layer.attrib["type"] in _PRODUCTS


def _multiplications(layer: ET.Element) -> int:
    first, second = ([int(d.text or 0) for d in port.iterfind("dim")] for port in layer.iterfind("input/port"))
    output = [int(d.text or 0) for d in layer.iterfind("output/port/dim")]
    kind = layer.attrib["type"]
    if kind == "ConvolutionBackpropData":
        return int(np.prod(first) * np.prod(second[1:]))
    return int(np.prod(output) * (first[-1] if kind == "MatMul" else np.prod(second[1 + (kind[0] == "G") :])))


def mixes(graph: Graph) -> Iterator[tuple[str, str, Ids]]:
    """Yield the name of each mix, its precision, and the nodes that stay in FP32."""
    yield "FP32", "f32", set()
    yield "bf16", "bf16", set()
    yield "FP32: depthwise convolutions", "bf16", graph.of_type("GroupConvolution")
    yield "FP32: matrix products", "bf16", graph.with_followers(graph.of_type("MatMul"))
    yield "FP32: all but convolutions and products", "bf16", graph.elementwise()
    for share in (0.2, 0.5, 0.75):
        yield f"FP32: first {share:.0%}", "bf16", graph.share(share)
        yield f"FP32: last {share:.0%}", "bf16", graph.share(share, last=True)
    yield "FP32: first 20% and all but convolutions and products", "bf16", graph.share(0.2) | graph.elementwise()


def in_onnxruntime(directory: Path, threads: int) -> Run:
    """Open the model in ONNX Runtime, which computes FP16 convolutions in FP32 on x86."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(directory / ONNX_FILE), options, providers=["CPUExecutionProvider"])
    return lambda feed: np.asarray(session.run(["output"], feed)[0])


def feeds(side: int) -> list[tuple[Feed, NDArray[np.bool_]]]:
    """Return the inputs of the graph, and the masks of the pixels that are compared."""
    found = []
    for photo, mask in pictures(side):
        image = np.ascontiguousarray(photo.transpose(2, 0, 1)[None] / np.float32(255))
        hole = (mask[None, None] > 127).astype(np.float32)
        found.append(({"image": image, "mask": hole}, cv2.distanceTransform(mask, cv2.DIST_L2, 5) > FEATHER + 1))
    return found


def levels(found: Outputs, wanted: Outputs, inside: list[NDArray[np.bool_]]) -> str:
    """Return the difference of the outputs in grey levels, as text."""
    differences = (255 * np.abs(np.clip(a, 0, 1) - np.clip(b, 0, 1))[0] for a, b in zip(found, wanted, strict=True))
    values = np.concatenate([part[:, mask].ravel() for part, mask in zip(differences, inside, strict=True)])
    return f"max {values.max():.2f}, p99.9 {np.quantile(values, 0.999):.2f}, mean {values.mean():.3f}"


def main() -> None:
    """Print one line for each mix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of the model version")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the engine")
    options = parser.parse_args()
    given = feeds(options.side)
    with tempfile.TemporaryDirectory() as scratch:
        graph = Graph(options.model, options.side, Path(scratch))
        runs = {name: graph.runner(precision, kept, options.threads) for name, precision, kept in mixes(graph)}
    runs["ONNX Runtime"] = in_onnxruntime(options.model, options.threads)
    wanted, inside = [runs["FP32"](feed) for feed, _ in given], [mask for _, mask in given]
    shown = {name: levels([run(feed) for feed, _ in given], wanted, inside) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds):
        for name in list(runs)[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            runs[name](given[0][0])
            times[name].append(1e3 * (time.perf_counter() - started))
    for name, ms in times.items():
        ratio = median(full / own for full, own in zip(times["FP32"], ms, strict=True))
        print(f"{name}: {shown[name]}; {median(ms):.0f} ms, {ratio:.2f} times as fast as FP32")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
