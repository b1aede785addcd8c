"""The INT8 graph in a form that TensorRT 8.6 builds: `python -m benchmarks.gpu_engines.trt86_graph DIRECTORY`.

TensorRT 8.6 ends with an assertion in `mergeScales` where a multiplication by a constant for each channel stands before
a quantisation by one scale. As inputs of the graph these numbers are no constants to it, and it merges nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GRAPH, FACTORS = "model.trt86.onnx", "model.trt86.npz"


def write_graph(directory: Path) -> int:
    """Write the graph and the numbers that became its inputs beside the model; returns how many there are."""
    model = onnx.load(str(directory / "model.onnx"))
    quantised = {node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    scaled = [node for node in model.graph.node if node.op_type == "Mul" and node.output[0] in quantised]
    wanted = {name for node in scaled for name in node.input}
    factors = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer if one.name in wanted}
    kept = [one for one in model.graph.initializer if one.name not in factors]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in factors.items()
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(directory / GRAPH))
    np.savez(
        directory / FACTORS, names=np.array(list(factors)), **{f"n{i}": one for i, one in enumerate(factors.values())}
    )
    return len(factors)


if __name__ == "__main__":
    print(write_graph(Path(sys.argv[1])), "factors are inputs")
