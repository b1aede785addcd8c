"""OpenVINO computes INT8 models with INT8 kernels, and their other layers in bf16 where that is exact enough."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engines.cpu.openvino_precision import executed_precision
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import compare
from engines.parity.decisions import Decision
from engines.parity.probes import probe_feeds
from export.int8.graph import InputScale, to_int8
from tests.engines.conftest import INT8, conv_graph, int8_graph, serialised
from tests.engines.cpu.openvino_engines import needs_bf16, open_engine


def test_an_int8_model_runs_int8_kernels_and_says_so(publish, tmp_path):
    directory = publish(onnx_model=int8_graph(), **INT8)
    engine = open_engine(directory, tmp_path)
    assert engine.precision == "int8"
    assert engine.note.startswith("1 of 2 convolutions run INT8 kernels, the rest is ")
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    verdict = compare(
        lambda feed: reference.infer(feed)["output"],
        lambda feed: engine.infer(feed)["output"],
        probe_feeds(engine.manifest),
    )
    assert verdict.passes(28)
    again = open_engine(directory, tmp_path)  # from the cache of compiled graphs
    assert again.precision == "int8"


def share_graph(mask="mask"):
    """Make an INT8 graph over the shares of known pixels, six halvings down, each share four times as large.

    Args:
        mask: the tensor that the mask is read from; a name other than the input's hides its meaning from the writer.
    """
    nodes = [] if mask == "mask" else [helper.make_node("Identity", ["mask"], [mask])]
    nodes.append(helper.make_node("Sub", ["one", mask], ["known"], name="known"))
    share = "known"
    for level in range(6):
        mean, more, most = f"mean{level}", f"more{level}", f"most{level}"
        nodes += [
            helper.make_node("AveragePool", [share], [mean], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Mul", [mean, "four"], [more]),
            helper.make_node("Clip", [more, "", "one"], [most]),
        ]
        share = most
    nodes += [
        helper.make_node("AveragePool", ["image"], ["small"], kernel_shape=[64, 64], strides=[64, 64]),
        helper.make_node("Mul", ["small", share], ["x"]),
        helper.make_node("Conv", ["x", "weight"], ["y"], name="conv"),
        helper.make_node("Resize", ["y", "", "larger"], ["z"], mode="nearest"),
        helper.make_node("Sigmoid", ["z"], ["output"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", channels, "height", "width"])
        for name, channels in (("image", 3), ("mask", 1))
    ]
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    weights = {
        "one": np.float32(1),
        "four": np.float32(4),
        "weight": 4 * np.eye(3, dtype=np.float32)[..., None, None],
        "larger": np.array([1, 1, 64, 64], np.float32),
    }
    model = onnx.load_from_string(serialised(nodes, inputs, output, weights))
    return to_int8(model, {"conv": InputScale(1.0, np.ones(3, np.float32))}).SerializeToString()


LARGE = {"size": {"kind": "multiple", "multiple_of": 64, "sides": [64]}, **INT8}


@needs_bf16
def test_beside_int8_layers_the_rest_computes_in_bf16(publish, tmp_path):
    engine = open_engine(publish(onnx_model=share_graph(), **LARGE), tmp_path)
    assert engine.precision == "int8"
    assert engine.note.startswith("1 of 1 convolutions run INT8 kernels, the rest is bf16: bf16 against fp32: ")


@needs_bf16
def test_bf16_is_refused_where_openvino_computes_it_wrongly_beside_int8(publish, tmp_path):
    engine = open_engine(publish(onnx_model=share_graph("hidden"), **LARGE), tmp_path)
    assert engine.precision == "int8"
    assert "the rest is fp32: bf16 refused: " in engine.note


@pytest.mark.parametrize("kernel", ["jit_avx512_I8", "brgconv_avx512_amx_i8"])
def test_int8_kernels_are_known_by_either_spelling(publish, kernel):
    def layer(kind, kernel):
        return SimpleNamespace(get_rt_info=lambda: {"layerType": np.str_(kind), "primitiveType": np.str_(kernel)})

    layers = [layer("Convolution", kernel), layer("Convolution", "brgconv_avx512_amx_bf16"), layer("Reorder", kernel)]
    compiled = SimpleNamespace(get_runtime_model=lambda: SimpleNamespace(get_ops=lambda: layers))
    manifest = read_manifest(publish(onnx_model=int8_graph(), **INT8))
    precision, why = executed_precision(compiled, manifest, Decision(precision="bf16", why="measured"))
    assert (precision, why) == ("int8", "1 of 2 convolutions run INT8 kernels, the rest is bf16: measured")


def test_an_int8_manifest_on_a_graph_without_int8_is_not_called_int8(publish, tmp_path):
    engine = open_engine(publish(onnx_model=conv_graph(), **INT8), tmp_path)
    assert engine.precision != "int8"
    assert engine.note.startswith("0 of 1 convolutions run INT8 kernels")
