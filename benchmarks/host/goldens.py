"""Compares exported graphs of partial convolution and pix2pix with reference outputs of the public code.

Run `.venv/bin/python -m benchmarks.host.goldens SHARED`; the folder SHARED has `golden/` and `checkpoints/`. It prints
the largest difference of torch and of the FP32 graph from the reference, on the scale of the reference, and the PSNR of
the FP16 graph (peak: the range of the outputs).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from export.checkpoint import load_strictly, read_checkpoint
from export.lowering import to_half
from export.onnx_graph import write_graph
from export.parity import onnx_backend, torch_backend
from export.recognition import recognise

CASES = {
    "pconv_photos": "checkpoints/pconv_photos.pth",
    "pix2pix_unet_256_batch_tiny": "golden/pix2pix_unet_256_batch_tiny.pth",
    "pix2pix_resnet_9blocks_instance_tiny": "golden/pix2pix_resnet_9blocks_instance_tiny.pth",
}


def batched(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Add the batch dimension to C×H×W if it is missing."""
    return np.ascontiguousarray(array if array.ndim == 4 else array[None], np.float32)


def main() -> None:
    """Print one row for each reference output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="folder with the public checkpoints and golden/")
    shared = parser.parse_args().shared
    print(f"{'golden':40}{'torch':>10}{'ONNX FP32':>11}{'FP16 dB':>9}")
    for name, file in CASES.items():
        golden = {key: batched(value) for key, value in np.load(shared / f"golden/{name}.npz").items()}
        found = recognise(read_checkpoint(shared / file).parts, None, {})
        with torch.device("meta"):
            net = found.family.build(found.options)
        load_strictly(net, found.family.translate(found.state, found.options).state)
        interface, lowered = found.family.interface(found.options), found.family.lower(net, found.options)
        signed = "mask" not in golden  # pix2pix references are in [-1, 1], the tensor contract is [0, 1]
        feed = {"image": (golden["image"] + 1) / 2 if signed else golden["image"]}
        if not signed:
            feed["mask"] = golden["mask"][:, :1]
        wanted, scale = golden["output"], 2.0 if signed else 1.0
        with tempfile.TemporaryDirectory() as folder:
            graphs = {"fp32": Path(folder, "fp32.onnx"), "fp16": Path(folder, "fp16.onnx")}
            write_graph(lowered, interface, graphs["fp32"])
            write_graph(to_half(lowered), interface, graphs["fp16"])
            backends = {key: onnx_backend(path) for key, path in graphs.items()}
            backends["torch"] = torch_backend(found.family.wrap(net, found.options).eval())
            outputs = {key: run(feed) * scale - (scale - 1) for key, run in backends.items()}
        error = float(np.square(outputs["fp16"] - wanted).mean())
        decibel = 20 * math.log10(scale) - 10 * math.log10(error)
        differences = [float(np.abs(outputs[key] - wanted).max()) for key in ("torch", "fp32")]
        print(f"{name:40}{differences[0]:10.1e}{differences[1]:11.1e}{decibel:9.1f}")


if __name__ == "__main__":
    main()
