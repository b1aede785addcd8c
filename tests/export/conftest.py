"""Fixtures of the export tests: reference outputs, random nets, and a parity check that every family passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from engines.errors import EngineUnavailable
from engines.manifest import MAX_SAMPLES, Manifest, MultipleSize
from engines.trt.build import BuildOptions, ComputeCapability, build_plan, make_profiles, parse_network
from engines.trt.library import MODULES, TensorRt, load_tensorrt
from export.checkpoint import load_strictly, read_checkpoint, sha256_of
from export.generators.family import Family, GeneratorOptions, Interface
from export.lowering import to_half
from export.onnx_graph import OPSET, write_graph
from export.parity import onnx_backend, torch_backend
from export.parity_inputs import find_pictures, parity_inputs
from export.recognition import recognise
from export.states.finding import StateDict
from tests.untraced import uncollected, untraced

ROOT = Path(__file__).resolve().parents[2]
Feed = dict[str, NDArray[Any]]


@pytest.fixture(scope="session")
def pictures_dir() -> Path:
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def shared_file() -> Callable[[str], Path]:
    """Return a file of the reference material beside the checkout; skips the test if it is missing."""

    def find(name: str) -> Path:
        path = (ROOT / "../shared" / name).resolve()
        if not path.is_file():
            pytest.skip(f"needs ../shared/{name}, which is not part of the repository")
        return path

    return find


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Use one torch thread: tiny nets gain nothing from more, and busy machines lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _untraced_programs() -> Iterator[None]:
    """Write and load programs outside of coverage, which would double their time, nearly all in torch's own Python.

    The garbage collector is off meanwhile: it takes a quarter of the rest, as everything that is made is kept.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("export", "save", "load"):
            patch.setattr(torch.export, name, uncollected(untraced(getattr(torch.export, name))))
        yield


def small_tiles(interface: Interface) -> Interface:
    """Return the interface with the smallest allowed tiles of at least 32 pixels, for speed."""
    if not isinstance(interface.size, MultipleSize):
        return interface
    side = interface.size.multiple_of * math.ceil(32 / interface.size.multiple_of)
    return replace(interface, size=interface.size.model_copy(update={"sides": (side, 2 * side)}))


@pytest.fixture(scope="session")
def small() -> Callable[[Interface], Interface]:
    return small_tiles


def randomised(net: nn.Module, seed: int) -> nn.Module:
    """Set random weights that keep activations near 1 and make batch norms matter, so that errors show."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in net.state_dict().items():
        if name.endswith("mask_conv.weight"):
            tensor.fill_(1)
        elif name.endswith("filter_const"):
            continue  # MI-GAN's grid of kept pixels
        elif name.endswith(("running_var",)):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
        elif tensor.ndim == 1 and name.endswith("weight"):
            tensor.copy_(0.8 + 0.4 * torch.rand(tensor.shape, generator=generator))
        elif tensor.is_floating_point():
            fan = math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 100
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / math.sqrt(fan))
    return net.eval().requires_grad_(requires_grad=False)


@pytest.fixture(scope="session")
def make_net() -> Callable[..., nn.Module]:
    """Make a family's net with random weights, in eval mode."""

    def make(family: Family[Any], options: GeneratorOptions, seed: int = 1) -> nn.Module:
        return randomised(family.build(options), seed)

    return make


@pytest.fixture
def run_graph(tmp_path: Path) -> Callable[..., NDArray[Any]]:
    """Run a net's graph, FP32 or FP16, on one feed."""

    def run(family: Family[Any], options: GeneratorOptions, net: nn.Module, feed: Feed, *, half: bool) -> NDArray[Any]:
        lowered = family.lower(net, options)
        path = tmp_path / f"{'half' if half else 'single'}.onnx"
        write_graph(to_half(lowered) if half else lowered, family.interface(options), path)
        return onnx_backend(path)(feed)

    return run


@pytest.fixture
def round_trip(tmp_path: Path) -> Callable[..., nn.Module]:
    """Save a net, read it, check that its options are recognised, and load it again."""

    def trip(family: Family[Any], options: GeneratorOptions, net: nn.Module) -> nn.Module:
        path = tmp_path / "checkpoint.pth"
        torch.save(net.state_dict(), path)
        found = recognise(read_checkpoint(path).parts, None, {})
        assert (found.family.name, found.options) == (family.name, options)
        with torch.device("meta"):
            again = family.build(options)
        load_strictly(again, family.translate(found.state, options).state)
        return again

    return trip


@pytest.fixture
def check_parity(tmp_path: Path, pictures_dir: Path) -> Callable[..., None]:
    """Check that torch, FP32 graph and FP16 graph agree on pictures, batches, sizes and masks within the bars."""

    def check(family: Family[Any], options: GeneratorOptions, net: nn.Module, names: Sequence[str] = ()) -> None:
        bars = family.bars(options)
        interface, lowered = small_tiles(family.interface(options)), family.lower(net, options)
        write_graph(lowered, interface, tmp_path / "single.onnx")
        write_graph(to_half(lowered), interface, tmp_path / "half.onnx")
        reference = torch_backend(family.wrap(net, options).eval())
        single, half = onnx_backend(tmp_path / "single.onnx"), onnx_backend(tmp_path / "half.onnx")
        for sample in parity_inputs(interface, find_pictures(pictures_dir), np.random.default_rng(3)):
            if names and sample.name not in names:
                continue
            wanted, found, rough = reference(sample.feed), single(sample.feed), half(sample.feed)
            assert np.isfinite(rough).all(), sample.name
            assert np.abs(found - wanted).max() <= bars.fp32_max_abs, sample.name
            assert psnr_db(found, wanted) >= bars.fp32_psnr_db, sample.name
            assert psnr_db(rough, wanted) >= bars.fp16_psnr_db, sample.name

    return check


def psnr_db(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Compute the PSNR in dB for a peak of 1.0."""
    error = float(np.mean(np.square(found.astype(np.float64) - wanted)))
    return math.inf if error == 0 else -10 * math.log10(error)


@pytest.fixture(scope="session")
def psnr() -> Callable[..., float]:
    return psnr_db


@pytest.fixture
def load_golden(shared_file: Callable[[str], Path]) -> Callable[..., tuple[GeneratorOptions, nn.Module, Any]]:
    """Load a reference checkpoint as the command does; returns its options, its net and the arrays of its output."""

    def load(name: str, **overrides: str) -> tuple[GeneratorOptions, nn.Module, Any]:
        path = shared_file(f"golden/{name}.pth")
        found = recognise(read_checkpoint(path).parts, None, overrides)
        with torch.device("meta"):
            net = found.family.build(found.options)
        load_strictly(net, found.family.translate(found.state, found.options).state)
        return found.options, net, np.load(path.with_suffix(".npz"))

    return load


@pytest.fixture
def check_recognition() -> Callable[..., None]:
    """Check that thirty random configurations are recognised from keys and shapes, and by this family first."""

    def check(family: Family[Any], draw: Callable[[np.random.Generator], dict[str, Any]], count: int = 30) -> None:
        rng = np.random.default_rng(11)
        for _ in range(count):
            options = family.options.model_validate(draw(rng))
            with torch.device("meta"):
                state = dict(family.build(options).state_dict())
            found = recognise([StateDict("", state)], None, {})
            assert (found.family.name, found.options) == (family.name, options)

    return check


@pytest.fixture(scope="session")
def rtx() -> TensorRt:
    """Load TensorRT-RTX, whose wheels parse and build without a GPU, with its error log cleared."""
    try:
        library = load_tensorrt(MODULES[2:])
    except EngineUnavailable as error:
        pytest.skip(str(error))
    return library


def manifest_for(family: Family[Any], options: GeneratorOptions, graph: Path) -> Manifest:
    """Make the manifest that export writes for the FP16 graph, with the smallest tiles."""
    interface = small_tiles(family.interface(options))
    return Manifest.model_validate(
        {
            "name": "tiny",
            "version": 1,
            "task": interface.task,
            "generator": family.name,
            "options": options.model_dump(),
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


@pytest.fixture
def write_half(tmp_path: Path) -> Callable[..., Manifest]:
    """Write the FP16 graph of a net with random weights to tmp_path/model.onnx."""

    def write(family: Family[Any], options: GeneratorOptions) -> Manifest:
        net = randomised(family.build(options), 1)
        path = tmp_path / "model.onnx"
        write_graph(to_half(family.lower(net, options)), small_tiles(family.interface(options)), path)
        return manifest_for(family, options, path)

    return write


@pytest.fixture
def check_plan(rtx: TensorRt, tmp_path: Path, write_half: Callable[..., Manifest]) -> Callable[..., None]:
    """Build a real TensorRT plan from the FP16 graph, for a GPU of another host.

    The network has the contract's types and shapes outside and the graph's half convolutions inside; the plan has a
    profile for every tile size, and for as many samples of a row as a request may ask for.
    """

    def check(family: Family[Any], options: GeneratorOptions) -> None:
        manifest = write_half(family, options)
        builder = rtx.module.Builder(rtx.logger)
        _check_network(rtx, parse_network(rtx, builder, tmp_path / "model.onnx", manifest), manifest)
        plan = build_plan(rtx, tmp_path, manifest, BuildOptions(max_batch=4, targets=(ComputeCapability(8, 9),)))
        assert len(plan.data) > 1000
        assert rtx.take_errors() == []
        made = make_profiles(manifest, 4)
        assert {profile.largest[1:3] for profile in made} == set(manifest.size.tile_sizes())
        assert max(profile.largest.samples for profile in made) == (MAX_SAMPLES if manifest.samples_together else 1)

    return check


def _check_network(rtx: TensorRt, network: Any, manifest: Manifest) -> None:
    types, kinds = rtx.module.DataType, rtx.module.LayerType
    named = {"float32": types.FLOAT, "uint8": types.UINT8, "int32": types.INT32}
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    found = {tensor.name: (tensor.dtype, tuple(tensor.shape)) for tensor in inputs}
    free = {spec.name: tuple(d if isinstance(d, int) else -1 for d in spec.shape) for spec in manifest.inputs}
    assert found == {spec.name: (named[spec.dtype], free[spec.name]) for spec in manifest.inputs}
    assert (network.num_outputs, network.get_output(0).dtype) == (1, types.FLOAT)
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    convolutions = [layer for layer in layers if layer.type in (kinds.CONVOLUTION, kinds.DECONVOLUTION)]
    # convolutions of a partial convolution's mask branch count in FP32
    assert sum(layer.get_output(0).dtype == types.HALF for layer in convolutions) >= len(convolutions) / 2 > 0
