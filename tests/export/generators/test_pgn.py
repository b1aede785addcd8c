from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from export.generators.pgn import FILL, PGN, CentreHoleContract, LoweredCell, PGNOptions
from export.lowering import to_half

FAMILY = PGN()


def test_golden_comes_out_of_torch_and_both_graphs(load_golden, run_graph, psnr):
    options, net, golden = load_golden("pgn_four_tiny")
    assert options == PGNOptions(stages=4, width=8)
    mask = np.zeros((2, 1, 128, 128), np.float32)
    mask[..., 40:80, 50:90] = 1
    feed, wanted = {"image": golden["image_full"], "mask": mask}, golden["output"]
    with torch.inference_mode():
        found = FAMILY.wrap(net, options)(*map(torch.from_numpy, feed.values())).numpy()
        first, _ = net.get_submodule("unet_1")(torch.from_numpy(golden["image"]), None)
    assert np.abs(first.numpy() - golden["stage1"]).max() <= 1e-4
    assert np.abs(found - wanted).max() <= 1e-4
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= 2e-4
    rough = run_graph(FAMILY, options, net, feed, half=True)
    assert np.isfinite(rough).all()
    assert psnr(rough, wanted) >= 40


@pytest.mark.parametrize("options", [PGNOptions(stages=2, width=3), PGNOptions(stages=4, width=2)], ids=str)
def test_graphs_agree_with_torch_and_options_come_back(options, make_net, check_parity, round_trip):
    net = make_net(FAMILY, options)
    check_parity(FAMILY, options, net)
    x = torch.rand(2, 3, 128, 128)
    assert torch.equal(round_trip(FAMILY, options, net)(x), net(x))


@pytest.mark.parametrize(("stages", "parameters", "keys"), [(4, 199_048_280, 348), (2, 98_478_796, 176)])
def test_full_width_nets_have_the_public_codes_parameters_and_keys(stages, parameters, keys):
    with torch.device("meta"):
        net = FAMILY.build(PGNOptions(stages=stages))
    assert (sum(p.numel() for p in net.parameters()), len(net.state_dict())) == (parameters, keys)


def test_every_random_configuration_is_recognised(check_recognition):
    check_recognition(FAMILY, lambda rng: {"stages": int(rng.choice([2, 4])), "width": rng.integers(1, 90)})


def test_lowered_cell_is_the_lstm_cell():
    cell, x = nn.LSTMCell(5, 7), torch.rand(3, 5)
    lowered = LoweredCell(cell)
    state, found = None, None
    for _ in range(3):
        state, found = cell(x, state), lowered(x, found)
        assert torch.allclose(found[0], state[0], atol=1e-6)
        assert torch.allclose(found[1], state[1], atol=1e-6)
    assert to_half(nn.Sequential(lowered))[0](x.half(), None)[1].dtype == torch.float32


def test_whatever_is_to_be_filled_is_hidden_from_the_net():
    seen = CentreHoleContract(nn.Identity())
    mask = torch.zeros(1, 1, 128, 128)
    mask[..., 0, 0] = 1
    painted = seen(torch.ones(1, 3, 128, 128), mask)
    assert painted[0, :, 0, 0].tolist() == pytest.approx(FILL)
    assert painted[0, :, 32, 95].tolist() == pytest.approx(FILL)
    assert painted[0, :, 31, 95].tolist() == [1, 1, 1]
    assert painted[0, :, 32, 96].tolist() == [1, 1, 1]


def test_tensorrt_plan_is_built(check_plan):
    check_plan(FAMILY, PGNOptions(stages=2, width=2))
