"""LaMa in the form for programs, with local and global features apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from export.activations import largest_activation
from export.generators.lama.fourier import fourier_matrices, from_spectrum, spectrum
from export.generators.lama.generator import LaMa
from export.generators.lama.lowered import LoweredLaMa
from export.generators.lama.net import LaMaOptions
from export.generators.lama.products import FourierProducts
from export.generators.lama.split import SplitLaMa
from export.program import program_backend, write_program

pytestmark = pytest.mark.slow

FAMILY = LaMa()
TINY = LaMaOptions(ngf=8, downsamplings=2, blocks=3)
SPLIT = [
    TINY,
    LaMaOptions(ngf=4, downsamplings=1, blocks=1, ratio=0.5, output="none"),
    LaMaOptions(ngf=6, downsamplings=2, blocks=2, ratio=7 / 24, output="tanh"),
    LaMaOptions(ngf=3, downsamplings=3, blocks=2, ratio=23 / 24),
    LaMaOptions(ngf=5, downsamplings=2, blocks=1, ratio=2 / 20),
]
AS_THE_GRAPH = [
    LaMaOptions(ngf=8, downsamplings=2, blocks=1, ratio=0.5, lfu=True),
    LaMaOptions(ngf=4, downsamplings=3, blocks=1, out_ratio=0.5),
    LaMaOptions(ngf=16, downsamplings=2, blocks=1, lfu=True, out_ratio=0.5, out_lfu=True),
]
SIZES = ((1, 36, 52), (3, 64, 40), (2, 44, 128))  # features of 9×13, 16×10 and 11×32 after two halvings


def _drawn(count: int, height: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    mask = (rng.random((count, 1, height, width)) > 0.6).astype(np.float32)
    return {"image": rng.random((count, 3, height, width), np.float32), "mask": mask}


def _of(net: torch.nn.Module, feed: dict[str, Any]) -> Any:
    with torch.inference_mode():
        return net(*(torch.from_numpy(array) for array in feed.values())).numpy()


@pytest.mark.parametrize("options", SPLIT, ids=str)
def test_a_split_net_computes_what_the_public_one_does(options, make_net):
    net = make_net(FAMILY, options)
    split = FAMILY.lower_for_program(net, options)
    assert isinstance(split, SplitLaMa)
    for count, height, width in SIZES:
        step = 1 << options.downsamplings
        feed = _drawn(count, height // step * step, width // step * step)
        assert np.abs(_of(split, feed) - _of(net, feed)).max() <= 1e-5


@pytest.mark.parametrize("options", AS_THE_GRAPH, ids=str)
def test_local_units_and_outer_blocks_keep_the_form_of_the_graph(options, make_net):
    net = make_net(FAMILY, options)
    kept = FAMILY.lower_for_program(net, options)
    assert type(kept) is LoweredLaMa
    feed = _drawn(3, 48, 32)
    assert np.abs(_of(kept, feed) - _of(net, feed)).max() <= 1e-5


def test_the_graph_keeps_its_form(make_net):
    assert type(FAMILY.lower(make_net(FAMILY, TINY), TINY)) is LoweredLaMa


@pytest.mark.parametrize("options", [SPLIT[2], AS_THE_GRAPH[0]], ids=str)
def test_one_program_has_every_batch_and_size(options, make_net, tmp_path):
    net, path = make_net(FAMILY, options), tmp_path / "program.pt2"
    write_program(FAMILY.lower_for_program(net, options), FAMILY.interface(options), "fp32", path)
    run, multiple = program_backend(path), options.multiple
    for count, rows, columns in ((1, 8, 5), (3, 5, 7), (1, 4, 4)):
        feed = _drawn(count, rows * multiple, columns * multiple)
        assert np.abs(run(feed) - _of(net, feed)).max() <= 1e-5


def test_a_program_in_fp16_keeps_the_bar(make_net, tmp_path, psnr):
    net, path = make_net(FAMILY, TINY), tmp_path / "program.pt2"
    write_program(FAMILY.lower_for_program(net, TINY), FAMILY.interface(TINY), "fp16", path)
    run = program_backend(path)
    for size in ((1, 64, 96), (3, 40, 56)):
        feed = _drawn(*size)
        assert psnr(run(feed), _of(net, feed)) >= FAMILY.bars(TINY).fp16_psnr_db


def test_activations_grow_no_larger_than_the_graphs(make_net):
    """The choice of FP16 is based on the graph's activations, with a margin of four."""
    net, feeds = make_net(FAMILY, TINY), [_drawn(1, 128, 128)]
    graph = largest_activation(FAMILY.lower(net, TINY), feeds)
    assert largest_activation(FAMILY.lower_for_program(net, TINY), feeds) <= 1.5 * graph


@pytest.mark.parametrize("size", [(16, 16), (9, 13), (2, 7), (5, 4)], ids=str)
def test_products_are_the_transform_of_every_size(size):
    x = torch.randn(2, 6, *size)
    products, matrices = FourierProducts(x), fourier_matrices(x)
    found = products.forward(x.permute(0, 2, 3, 1))
    wanted = spectrum(x, matrices)
    assert torch.allclose(
        found.permute(0, 3, 1, 2).unflatten(1, (2, 6)).transpose(1, 2).flatten(1, 2), wanted, atol=1e-5
    )
    changed = torch.randn_like(wanted)  # not the spectrum of real features
    blocks = changed.unflatten(1, (6, 2)).transpose(1, 2).flatten(1, 2).permute(0, 2, 3, 1)
    assert torch.allclose(products.back(blocks).permute(0, 3, 1, 2), from_spectrum(changed, matrices), atol=1e-5)


def test_sums_of_large_half_activations_do_not_overflow():
    """A constant 900 on 64×64 features becomes 64 times as large in the spectrum, or 4,096 times if scaled last."""
    y = torch.full((1, 64, 64, 2), 900.0).half()
    products = FourierProducts(y.permute(0, 3, 1, 2))
    parts = products.forward(y)
    assert torch.isfinite(parts).all()
    assert float((products.back(parts).float() - 900).abs().max()) <= 4
