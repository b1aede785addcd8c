from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from export.generators import FAMILIES
from export.generators.family import Family, GeneratorOptions, Interface
from export.lowering import to_half
from export.parity import compare, missed_bars, torch_backend
from export.parity_inputs import find_pictures, parity_inputs
from export.program import in_gpu_layout, program_backend, write_program

pytestmark = pytest.mark.slow

TINY = {
    "pconv": {"levels": 3, "width": 4},
    "pix2pix": {"net": "resnet_6blocks", "norm": "instance", "ngf": 4},
    "pix2pixhd": {"net": "local", "ngf": 2, "downsamplings": 2, "blocks": 1},
    "pgn": {"width": 2, "stages": 2},
    "dcgan": {"ngf": 2, "nz": 4},
}


@dataclass(frozen=True)
class Written:
    """A net with random weights, and its FP16 program."""

    family: Family[Any]
    options: GeneratorOptions
    interface: Interface
    net: nn.Module
    lowered: nn.Module
    path: Path


@pytest.fixture(scope="module")
def half_program(make_net, small, tmp_path_factory) -> Callable[[str], Written]:
    """Return a function that writes a family's FP16 program once: torch.export takes seconds."""

    @cache
    def write(name: str) -> Written:
        family = FAMILIES[name]
        options = family.options.model_validate(TINY[name])
        net, interface = make_net(family, options), small(family.interface(options))
        lowered, path = family.lower(net, options), tmp_path_factory.mktemp(name) / "program.pt2"
        write_program(lowered, interface, "fp16", path)
        return Written(family, options, interface, net, lowered, path)

    return write


@pytest.mark.parametrize("name", TINY)
def test_program_computes_what_the_lowered_net_does_at_every_batch_and_size(
    name, make_net, tmp_path, pictures_dir, small
):
    family = FAMILIES[name]
    options = family.options.model_validate(TINY[name])
    interface, lowered = small(family.interface(options)), family.lower(make_net(family, options), options)
    write_program(lowered, interface, "fp32", tmp_path / "program.pt2")
    program = torch_backend(torch.export.load(tmp_path / "program.pt2").module())
    for sample in parity_inputs(interface, find_pictures(pictures_dir)[:1], np.random.default_rng(1)):
        assert np.abs(program(sample.feed) - torch_backend(lowered)(sample.feed)).max() < 1e-4, sample.name


def test_half_program_holds_half_weights_and_takes_and_gives_floats(half_program):
    written = half_program("pconv")
    program = torch.export.load(written.path)
    assert program.state_dict["blocks.enc_2.conv.weight"].dtype == torch.float16
    assert program.state_dict["blocks.enc_2.conv.weight"].is_contiguous(memory_format=torch.channels_last)
    feed = torch.rand(1, 3, 32, 32), torch.ones(1, 1, 32, 32)
    output = program.module()(*feed)
    assert output.dtype == torch.float32
    assert torch.allclose(output, to_half(written.lowered)(*feed), atol=5e-3)
    assert written.lowered.blocks["enc_2"].conv.weight.dtype == torch.float32


@pytest.mark.parametrize("name", ["pconv", "pix2pix", "dcgan"])
def test_half_program_meets_the_bars_of_the_half_graph(name, half_program, pictures_dir):
    written = half_program(name)
    samples = parity_inputs(written.interface, find_pictures(pictures_dir)[:1], np.random.default_rng(1))
    reference = torch_backend(written.family.wrap(written.net, written.options).eval())
    cases = compare(reference, {"program-fp16": program_backend(written.path)}, samples)
    assert missed_bars(cases, written.family.bars(written.options)) == []


class Recorder(TorchDispatchMode):
    """Records the weight types of the convolutions that are computed."""

    def __init__(self):
        super().__init__()
        self.types = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.types.append(args[1].dtype)
        return func(*args, **(kwargs or {}))


def test_half_convolutions_of_a_program_are_computed_in_full_precision_on_a_processor(half_program):
    run = program_backend(half_program("dcgan").path)
    with Recorder() as recorder:
        run({"latent": np.zeros((1, 4), np.float32)})
    assert recorder.types == [torch.float32] * 5


@pytest.mark.parametrize(("given", "made"), [(3, 16), (67, 3), (12, 20), (8, 16)])
def test_channels_are_filled_up_for_tensor_cores_and_the_result_is_the_same(given, made):
    net = torch.nn.Sequential(torch.nn.Conv2d(given, made, 3, padding=1))
    filled = in_gpu_layout(net, "fp16")
    weights = [weight for weight in filled.parameters() if weight.dim() == 4]
    assert all(side % 8 == 0 or side == 3 for weight in weights for side in weight.shape[:2])
    image = torch.rand(1, given, 9, 9)
    assert torch.allclose(filled.float()(image), net.half().float()(image), atol=1e-5)


def test_transposed_convolutions_keep_their_channels():
    net = torch.nn.Sequential(torch.nn.ConvTranspose2d(12, 3, 4, 2, 1))
    assert in_gpu_layout(net, "fp16")[0].weight.shape == (12, 3, 4, 4)
