"""Real TensorRT plans are built from every family's graph: the TensorRT-RTX wheels parse and build without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from engines.base import MOST_SAMPLES
from engines.errors import EngineUnavailable
from engines.manifest import Manifest
from engines.trt_build import BuildOptions, ComputeCapability, build_plan, parse_network, profiles
from engines.trt_library import MODULES, TensorRt, load_tensorrt
from export.checkpoint import sha256_of
from export.generators import FAMILIES
from export.lowering import halved
from export.onnx_graph import OPSET, write_graph

ADA = ComputeCapability(8, 9)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("pconv", {"levels": 3, "width": 4}),
    ("pconv_nvidia", {"levels": 3, "width": 4}),
    ("pix2pix", {"net": "unet_128", "ngf": 2}),
    ("pix2pix", {"net": "unet_128", "ngf": 2, "batch_norm": "batch-statistics"}),
    ("pix2pix", {"net": "resnet_6blocks", "norm": "instance", "ngf": 2}),
    ("pix2pixhd", {"ngf": 2, "downsamplings": 2, "blocks": 1}),
    ("pix2pixhd", {"net": "local", "ngf": 2, "downsamplings": 2, "blocks": 1, "local_blocks": 1}),
    ("pgn", {"stages": 2, "width": 2}),
    ("pdgan", {"prior_width": 2, "diverse": False}),
    ("pdgan", {"prior_width": 2, "ngf": 2, "z_dim": 4}),
    ("dcgan", {"nz": 4, "ngf": 2}),
]


@pytest.fixture(scope="module")
def library() -> TensorRt:
    try:
        return load_tensorrt(MODULES[1:])
    except EngineUnavailable as error:
        pytest.skip(str(error))


def manifest_of(family: str, options: dict[str, Any], graph: Path, interface: Any) -> Manifest:
    return Manifest.model_validate(
        {
            "name": "tiny",
            "version": 1,
            "task": interface.task,
            "generator": family,
            "options": options,
            "inputs": interface.inputs,
            "output": interface.output,
            "size": interface.size,
            "max_batch": 4,
            "precision": "fp16",
            "opset": OPSET,
            "onnx_sha256": sha256_of(graph),
            "checkpoint_sha256": "0" * 64,
            "licence": "none",
            "training_data": "none",
            "parity": {"bar_db": 40.0, "cases": []},
        }
    )


@pytest.fixture(
    scope="module", params=VARIANTS, ids=lambda variant: "-".join(map(str, (variant[0], *variant[1].values())))
)
def model(request, make_net, small, tmp_path_factory) -> tuple[Path, Manifest]:
    """A tiny net of the family with random weights: the folder of its FP16 graph, and its manifest."""
    family, directory = FAMILIES[request.param[0]], tmp_path_factory.mktemp("model")
    options = family.options.model_validate(request.param[1])
    interface = small(family.interface(options))
    write_graph(halved(family.lower(make_net(family, options), options)), interface, directory / "model.onnx")
    return directory, manifest_of(*request.param, directory / "model.onnx", interface)


def test_every_family_is_among_the_variants():
    assert {family for family, _ in VARIANTS} == set(FAMILIES)


def test_network_keeps_the_contracts_types_and_the_graphs_half_convolutions(library, model):
    directory, manifest = model
    network = parse_network(library, library.module.Builder(library.logger), directory / "model.onnx", manifest)
    types, kinds = library.module.DataType, library.module.LayerType
    named = {"float32": types.FLOAT, "uint8": types.UINT8, "int32": types.INT32}
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    found = {tensor.name: (tensor.dtype, tuple(tensor.shape)) for tensor in inputs}
    free = {spec.name: tuple(d if isinstance(d, int) else -1 for d in spec.shape) for spec in manifest.inputs}
    assert found == {spec.name: (named[spec.dtype], free[spec.name]) for spec in manifest.inputs}
    assert (network.num_outputs, network.get_output(0).dtype) == (1, types.FLOAT)
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    convolutions = [layer for layer in layers if layer.type in (kinds.CONVOLUTION, kinds.DECONVOLUTION)]
    # those of a partial convolution's mask branch count in FP32
    assert sum(layer.get_output(0).dtype == types.HALF for layer in convolutions) >= len(convolutions) / 2 > 0


def test_plan_is_built_with_a_profile_for_every_bucket_batch_and_number_of_samples(library, model):
    directory, manifest = model
    plan = build_plan(library, directory, manifest, BuildOptions(max_batch=4, targets=(ADA,)))
    assert len(plan.data) > 1000
    assert library.take_errors() == []
    most = MOST_SAMPLES if manifest.samples_together else 1
    assert {profile[:2] for profile in profiles(manifest, 4)} == set(manifest.size.buckets())
    assert max(profile.most_samples for profile in profiles(manifest, 4)) == most


@pytest.mark.parametrize("model", VARIANTS[-1:], ids=["dcgan"], indirect=True)
def test_operator_that_cannot_be_parsed_is_named(library, model, tmp_path):
    directory, manifest = model
    graph = onnx.load(directory / "model.onnx")
    last = graph.graph.node[-1]
    graph.graph.node.append(helper.make_node("Frobnicate", ["before"], [last.output[0]], domain="acme"))
    last.output[0] = "before"
    graph.opset_import.append(helper.make_opsetid("acme", 1))
    onnx.save(graph, tmp_path / "model.onnx")
    with pytest.raises(EngineUnavailable, match="cannot parse tiny/1: operator Frobnicate"):
        build_plan(library, tmp_path, manifest, BuildOptions(targets=(ADA,)))
