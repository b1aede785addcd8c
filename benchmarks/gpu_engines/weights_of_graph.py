"""Writes the weights of a published FillNet graph as a checkpoint, for when the original checkpoint is missing.

    python -m benchmarks.gpu_engines.weights_of_graph models/photos/5/model.onnx FILE.safetensors

The graph's weights are FP16, so the checkpoint is rounded like the graph, and a program made of it computes the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

_NET = "net."


def main() -> None:
    """Read the graph, write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path, help="the ONNX graph")
    parser.add_argument("file", type=Path, help="file to write (.safetensors)")
    options = parser.parse_args()
    weights = {
        tensor.name.removeprefix(_NET).replace(".conv.", "."): numpy_helper.to_array(tensor).astype(np.float32)
        for tensor in onnx.load(options.graph).graph.initializer
        if tensor.name.startswith(_NET)
    }
    save_file(weights, options.file)
    print(f"{len(weights)} tensors, {sum(array.size for array in weights.values())} numbers")


if __name__ == "__main__":
    main()
