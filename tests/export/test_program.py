from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from export.generators import FAMILIES
from export.lowering import halved
from export.parity import compare, faults, torch_backend
from export.program import laid_out, program_backend, write_program
from export.samples import find_pictures, make_samples

TINY = {
    "pconv": {"levels": 3, "width": 4},
    "pix2pix": {"net": "resnet_6blocks", "norm": "instance", "ngf": 4},
    "pix2pixhd": {"net": "local", "ngf": 2, "downsamplings": 2, "blocks": 1},
    "pgn": {"width": 2, "stages": 2},
    "dcgan": {"ngf": 2, "nz": 4},
}


@pytest.mark.parametrize("name", TINY)
def test_program_computes_what_the_lowered_net_does_at_every_batch_and_size(
    name, make_net, tmp_path, pictures_dir, small
):
    family = FAMILIES[name]
    options = family.options.model_validate(TINY[name])
    interface, lowered = small(family.interface(options)), family.lower(make_net(family, options), options)
    write_program(lowered, interface, "fp32", tmp_path / "program.pt2")
    program = torch_backend(torch.export.load(tmp_path / "program.pt2").module())
    for sample in make_samples(interface, find_pictures(pictures_dir)[:1], np.random.default_rng(1)):
        assert np.abs(program(sample.feed) - torch_backend(lowered)(sample.feed)).max() < 1e-4, sample.name


def test_half_program_holds_half_weights_and_takes_and_gives_floats(make_net, tmp_path, small):
    family = FAMILIES["pconv"]
    options = family.options.model_validate(TINY["pconv"])
    interface, lowered = small(family.interface(options)), family.lower(make_net(family, options), options)
    write_program(lowered, interface, "fp16", tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    assert program.state_dict["blocks.enc_2.conv.weight"].dtype == torch.float16
    assert program.state_dict["blocks.enc_2.conv.weight"].is_contiguous(memory_format=torch.channels_last)
    feed = torch.rand(1, 3, 32, 32), torch.ones(1, 1, 32, 32)
    output = program.module()(*feed)
    assert output.dtype == torch.float32
    assert torch.allclose(output, halved(lowered)(*feed), atol=5e-3)
    assert lowered.blocks["enc_2"].conv.weight.dtype == torch.float32


@pytest.mark.parametrize("name", ["pconv", "pix2pix", "dcgan"])
def test_half_program_meets_the_bars_of_the_half_graph(name, make_net, tmp_path, pictures_dir, small):
    family = FAMILIES[name]
    options = family.options.model_validate(TINY[name])
    net, interface = make_net(family, options), small(family.interface(options))
    write_program(family.lower(net, options), interface, "fp16", tmp_path / "program.pt2")
    samples = make_samples(interface, find_pictures(pictures_dir)[:1], np.random.default_rng(1))
    reference = torch_backend(family.wrap(net, options).eval())
    cases = compare(reference, {"program-fp16": program_backend(tmp_path / "program.pt2")}, samples)
    assert faults(cases, family.bars(options)) == []


class Recorder(TorchDispatchMode):
    """The weight types of the convolutions that are computed."""

    def __init__(self):
        super().__init__()
        self.types = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.types.append(args[1].dtype)
        return func(*args, **(kwargs or {}))


def test_half_convolutions_of_a_program_are_computed_in_full_precision_on_a_processor(make_net, tmp_path, small):
    family = FAMILIES["dcgan"]
    options = family.options.model_validate(TINY["dcgan"])
    lowered = family.lower(make_net(family, options), options)
    write_program(lowered, family.interface(options), "fp16", tmp_path / "program.pt2")
    run = program_backend(tmp_path / "program.pt2")
    with Recorder() as recorder:
        run({"latent": np.zeros((1, 4), np.float32)})
    assert recorder.types == [torch.float32] * 5


@pytest.mark.parametrize(("given", "made"), [(3, 16), (67, 3), (12, 20), (8, 16)])
def test_channels_are_filled_up_for_tensor_cores_and_the_result_is_the_same(given, made):
    net = torch.nn.Sequential(torch.nn.Conv2d(given, made, 3, padding=1))
    filled = laid_out(net, "fp16")
    weights = [weight for weight in filled.parameters() if weight.dim() == 4]
    assert all(side % 8 == 0 or side == 3 for weight in weights for side in weight.shape[:2])
    image = torch.rand(1, given, 9, 9)
    assert torch.allclose(filled.float()(image), net.half().float()(image), atol=1e-5)


def test_transposed_convolutions_keep_their_channels():
    net = torch.nn.Sequential(torch.nn.ConvTranspose2d(12, 3, 4, 2, 1))
    assert laid_out(net, "fp16")[0].weight.shape == (12, 3, 4, 4)
