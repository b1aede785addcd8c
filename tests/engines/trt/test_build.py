"""Real builds: the TensorRT-RTX wheels parse and build on a machine without a GPU."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from engines.base import BatchShape
from engines.errors import EngineUnavailable
from engines.manifest import read_manifest
from engines.trt.build import BuildOptions, ComputeCapability, Profile, build_plan, make_profiles, parse_network
from engines.trt.library import MODULES, TensorRt, load_tensorrt
from tests.engines.conftest import INT8, SEVERAL_SAMPLES, conv_graph, int8_graph, shipped

GENERATIONS = [ComputeCapability(8, 6), ComputeCapability(8, 9), ComputeCapability(12, 0)]


@pytest.fixture(scope="module")
def library() -> TensorRt:
    try:
        found = load_tensorrt(MODULES[2:])
    except EngineUnavailable as error:
        pytest.skip(str(error))
    return found


def network_of(library: TensorRt, directory: Path) -> Any:
    builder = library.module.Builder(library.logger)
    return parse_network(library, builder, directory / "model.onnx", read_manifest(directory))


@pytest.mark.parametrize("target", GENERATIONS, ids=str)
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_plan_is_built_for_a_gpu_that_is_not_here(library, publish, target, half):
    directory = publish(onnx_model=conv_graph(half=half))
    plan = build_plan(library, directory, read_manifest(directory), BuildOptions(max_batch=4, targets=(target,)))
    assert len(plan.data) > 1000
    assert plan.timing_cache == b""
    assert library.take_errors() == []


def test_network_takes_float32_and_keeps_the_graphs_fp16_inside(library, publish):
    types_ = library.module.DataType
    directory = publish(onnx_model=conv_graph(half=True))
    network = network_of(library, directory)
    inputs = {network.get_input(i).name: network.get_input(i) for i in range(network.num_inputs)}
    assert {name: tensor.dtype for name, tensor in inputs.items()} == {"image": types_.FLOAT, "mask": types_.FLOAT}
    assert tuple(inputs["image"].shape) == (-1, 3, -1, -1)
    assert network.get_output(0).dtype == types_.FLOAT
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    convolutions = [layer for layer in layers if layer.type == library.module.LayerType.CONVOLUTION]
    assert [layer.get_output(0).dtype for layer in convolutions] == [types_.HALF]


def test_an_int8_graph_is_built(library, publish):
    directory = publish(onnx_model=int8_graph(), **INT8)
    kinds = library.module.LayerType
    network = network_of(library, directory)
    found = [network.get_layer(i).type for i in range(network.num_layers)]
    assert (found.count(kinds.QUANTIZE), found.count(kinds.DEQUANTIZE)) == (1, 2)
    options = BuildOptions(max_batch=4, targets=(ComputeCapability(8, 9),))
    assert len(build_plan(library, directory, read_manifest(directory), options).data) > 1000


def test_a_version_without_strong_types_refuses_int8(publish):
    module = types.SimpleNamespace(
        NetworkDefinitionCreationFlag=types.SimpleNamespace(EXPLICIT_BATCH=0), BuilderFlag=types.SimpleNamespace(FP16=0)
    )
    directory = publish(onnx_model=int8_graph(), **INT8)
    with pytest.raises(EngineUnavailable, match=r"TensorRT 8\.6\.0 builds no INT8 graph"):
        build_plan(TensorRt(module, False, (8, 6, 0), None), directory, read_manifest(directory), BuildOptions())


def test_fp32_graph_has_no_fp16_inside(library, publish):
    network = network_of(library, publish(onnx_model=conv_graph()))
    found = {network.get_layer(i).get_output(0).dtype for i in range(network.num_layers)}
    assert library.module.DataType.HALF not in found


def unparsable(operator: str, domain: str) -> bytes:
    pixels = ["batch", 3, "height", "width"]
    image, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, pixels) for name in ("image", "output"))
    graph = helper.make_graph(
        [helper.make_node(operator, ["image"], ["output"], domain=domain)], "g", [image], [output]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize(("operator", "domain"), [("Frobnicate", "acme"), ("Det", "")])
def test_operator_that_cannot_be_parsed_is_named(library, publish, operator, domain):
    directory = publish(onnx_model=unparsable(operator, domain), task="translate")
    with pytest.raises(EngineUnavailable, match=rf"cannot parse tiny/1.*{operator}"):
        build_plan(library, directory, read_manifest(directory), BuildOptions(targets=(GENERATIONS[0],)))


def test_file_that_is_no_graph_is_refused(library, publish):
    directory = publish(onnx_model=b"no graph")
    with pytest.raises(EngineUnavailable, match="cannot parse tiny/1"):
        build_plan(library, directory, read_manifest(directory), BuildOptions(targets=(GENERATIONS[0],)))


def test_generation_that_the_library_does_not_know_is_refused_with_those_it_knows(library, publish):
    directory = publish(onnx_model=conv_graph())
    with pytest.raises(EngineUnavailable, match="SM90, only SM120, SM121, SM75"):
        build_plan(library, directory, read_manifest(directory), BuildOptions(targets=(ComputeCapability(9, 0),)))


def test_build_that_fails_says_why(library, publish):
    directory = publish(onnx_model=conv_graph(size=(16, 16)), size={"kind": "fixed", "height": 32, "width": 32})
    with pytest.raises(EngineUnavailable, match=r"cannot build tiny/1: .+"):
        build_plan(library, directory, read_manifest(directory), BuildOptions(targets=(GENERATIONS[0],)))


@pytest.mark.parametrize("name", ["photos", "facades"])
def test_shipped_model_parses_with_fp16_inside_and_float32_outside(library, name):
    directory = shipped(name)
    network = network_of(library, directory)
    types_ = library.module.DataType
    tensors = [network.get_input(i) for i in range(network.num_inputs)] + [network.get_output(0)]
    assert {tensor.dtype for tensor in tensors} == {types_.FLOAT}
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    kinds = library.module.LayerType
    convolutions = [layer for layer in layers if layer.type in (kinds.CONVOLUTION, kinds.DECONVOLUTION)]
    half = [layer for layer in convolutions if layer.get_output(0).dtype == types_.HALF]
    assert len(half) >= len(convolutions) / 2 > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["photos", "facades"])
def test_shipped_model_builds_for_every_generation(library, name):
    directory = shipped(name)
    plan = build_plan(
        library, directory, read_manifest(directory), BuildOptions(max_batch=1, targets=tuple(GENERATIONS))
    )
    assert len(plan.data) > (directory / "model.onnx").stat().st_size / 2


def test_profiles_hold_every_bucket_alone_and_in_batches(make_manifest):
    found = make_profiles(make_manifest(), max_batch=4)
    assert found[:2] == [
        Profile(BatchShape(1, 16, 16), BatchShape(1, 16, 16)),
        Profile(BatchShape(2, 16, 16), BatchShape(4, 16, 16)),
    ]
    assert len(found) == 8
    held = [profile for profile in found if profile.holds(BatchShape(3, 32, 16))]
    assert held == [Profile(BatchShape(2, 32, 16), BatchShape(4, 32, 16))]


def test_profiles_that_span_all_buckets_are_two(make_manifest):
    found = make_profiles(make_manifest(), max_batch=4, spanning=True)
    assert found == [
        Profile(BatchShape(1, 16, 16), BatchShape(1, 32, 32)),
        Profile(BatchShape(2, 16, 16), BatchShape(4, 32, 32)),
    ]
    for size in make_manifest().size.tile_sizes():
        assert [profile.holds(BatchShape(3, *size)) for profile in found] == [False, True]


def test_profiles_of_rows_with_several_samples_hold_whatever_takes_no_more_memory_than_a_full_batch(make_manifest):
    manifest = make_manifest(size={"kind": "fixed", "height": 16, "width": 24}, **SEVERAL_SAMPLES)
    found = make_profiles(manifest, max_batch=8)
    allowed = {(rows, samples) for samples in range(1, 9) for rows in range(1, max(1, 8 // samples) + 1)}
    held = {(rows, samples) for rows in range(1, 9) for samples in range(1, 9)
            if any(profile.holds(BatchShape(rows, 16, 24, samples)) for profile in found)}  # fmt: skip
    assert allowed <= held
    assert max(profile.largest.batch * profile.largest.samples for profile in found) <= 16
    assert not any(profile.holds(BatchShape(1, 16, 24, 9)) for profile in found)


def test_profiles_respect_the_models_own_limit(make_manifest):
    manifest = make_manifest(max_batch=1, size={"kind": "fixed", "height": 16, "width": 24})
    assert make_profiles(manifest, max_batch=8) == [Profile(BatchShape(1, 16, 24), BatchShape(1, 16, 24))]


@pytest.mark.parametrize(
    ("text", "capability"), [("8.9", (8, 9)), ("12.0", (12, 0)), ("SM86", (8, 6)), ("sm_120", (12, 0))]
)
def test_compute_capability_is_read(text, capability):
    assert ComputeCapability.parse(text) == ComputeCapability(*capability)


@pytest.mark.parametrize("text", ["", "8", "Ada", "8.9.1", "-8.9"])
def test_anything_else_is_no_compute_capability(text):
    with pytest.raises(EngineUnavailable, match="is not a compute capability"):
        ComputeCapability.parse(text)


def test_rtx_has_every_name_that_running_a_plan_needs(library):
    trt = library.module
    names = {
        trt.Runtime: ["deserialize_cuda_engine"],
        trt.ICudaEngine: ["create_runtime_config", "create_execution_context", "device_memory_size_v2"],
        trt.IRuntimeConfig: [
            "set_execution_context_allocation_strategy",
            "create_runtime_cache",
            "set_runtime_cache",
            "get_runtime_cache",
        ],
        trt.IRuntimeCache: ["serialize", "deserialize"],
        trt.ExecutionContextAllocationStrategy: ["USER_MANAGED"],
        trt.IExecutionContext: [
            "set_device_memory",
            "set_optimization_profile_async",
            "set_input_shape",
            "set_tensor_address",
            "execute_async_v3",
            "is_stream_capturable",
        ],
    }
    assert [(kind.__name__, name) for kind, wanted in names.items() for name in wanted if not hasattr(kind, name)] == []


@pytest.mark.parametrize(
    ("creation", "builder", "strongly", "flags"),
    [
        pytest.param({"EXPLICIT_BATCH": 0}, {"FP16": 0}, False, 1, id="8.6"),
        pytest.param({"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1}, {"FP16": 0}, True, 2, id="10"),
        pytest.param({"STRONGLY_TYPED": 0}, {}, True, 1, id="11 and RTX"),
        pytest.param({}, {}, True, 0, id="a version without any choice"),
    ],
)
def test_typing_follows_what_the_version_has(creation, builder, strongly, flags):
    module = types.SimpleNamespace(
        NetworkDefinitionCreationFlag=types.SimpleNamespace(**creation), BuilderFlag=types.SimpleNamespace(**builder)
    )
    library = TensorRt(module, False, (1, 0, 0), None)
    assert (library.is_strongly_typed, library.network_flags()) == (strongly, flags)


def test_logger_keeps_the_last_errors_and_the_warnings_only_where_there_is_no_error(library):
    severity = library.module.ILogger.Severity
    library.logger.log(severity.WARNING, "slow")
    library.logger.log(severity.INFO, "chat")
    assert library.take_errors() == ["slow"]
    errors = [f"error {number}" for number in range(30)]
    for error in errors:
        library.logger.log(severity.ERROR, error)
    library.logger.log(severity.WARNING, "slow")
    assert library.take_errors() == errors[10:]
    assert library.take_errors() == []


def test_missing_library_says_what_to_install():
    with pytest.raises(EngineUnavailable, match="`retouch install-gpu` installs the best one"):
        load_tensorrt(["surely_not_installed"])


def test_stub_from_pypi_is_not_taken_for_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_stub", types.ModuleType("tensorrt_stub"))
    with pytest.raises(EngineUnavailable, match="tensorrt_stub is a stub"):
        load_tensorrt(["tensorrt_stub"])


def test_library_that_does_not_load_says_why(tmp_path, monkeypatch):
    (tmp_path / "tensorrt_broken.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineUnavailable, match=r"tensorrt_broken: libcudart"):
        load_tensorrt(["tensorrt_broken"])
