from __future__ import annotations

import numpy as np
import pytest
import torch

from export.generators.dcgan import DCGAN, DCGANOptions

FAMILY = DCGAN()


def test_golden_comes_out_of_torch_and_both_graphs(load_golden, run_graph, psnr):
    options, net, golden = load_golden("dcgan_64_tiny")
    assert options == DCGANOptions(nz=16, ngf=8, nc=1)
    feed, wanted = {"latent": golden["z"][:, :, 0, 0]}, golden["output"] / 2 + 0.5
    with torch.inference_mode():
        found = FAMILY.wrap(net, options)(torch.from_numpy(feed["latent"])).numpy()
    assert np.abs(found - wanted).max() <= 1e-4
    assert np.abs(run_graph(FAMILY, options, net, feed, half=False) - wanted).max() <= 1e-4
    assert psnr(run_graph(FAMILY, options, net, feed, half=True), wanted) >= 45


@pytest.mark.parametrize(
    "options",
    [DCGANOptions(nz=5, ngf=3, nc=3), DCGANOptions(nz=100, ngf=4, nc=2), DCGANOptions(nz=5, ngf=1, side=256)],
    ids=str,
)
def test_graphs_agree_with_torch_and_options_come_back(options, make_net, check_parity, round_trip):
    net = make_net(FAMILY, options)
    check_parity(FAMILY, options, net)
    z = torch.rand(2, options.nz, 1, 1)
    assert torch.equal(round_trip(FAMILY, options, net)(z), net(z))


def test_full_width_net_has_the_public_codes_parameters_and_keys():
    net = FAMILY.build(DCGANOptions())
    assert (sum(p.numel() for p in net.parameters()), len(net.state_dict())) == (3_576_704, 25)


def test_every_random_configuration_is_recognised(check_recognition):
    check_recognition(
        FAMILY,
        lambda rng: {
            "nz": rng.integers(1, 300),
            "ngf": rng.integers(1, 20),
            "nc": rng.integers(1, 4),
            "side": 64 << int(rng.integers(0, 3)),
        },
    )


def test_tensorrt_plan_is_built(check_plan):
    check_plan(FAMILY, DCGANOptions(nz=4, ngf=2))
