from __future__ import annotations

import numpy as np
import pytest
import torch

from export.generators import FAMILIES
from export.lowering import halved
from export.parity import torch_backend
from export.program import write_program
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
