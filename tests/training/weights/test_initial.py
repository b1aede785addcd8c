from __future__ import annotations

import pytest
import torch
from torch import nn

from training.errors import CheckpointMismatch
from training.weights.initial import load_initial


def test_weights_are_found_beside_a_best_loss_that_is_still_infinite(tmp_path):
    wanted, net = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)
    torch.save({"model": wanted.state_dict(), "best_loss": torch.tensor(float("inf"))}, tmp_path / "net.pth")
    load_initial(net, tmp_path / "net.pth", dict)
    assert torch.equal(net.weight, wanted.weight)


def test_diverged_weights_are_refused_by_name_though_the_file_has_others(tmp_path):
    diverged = {"weight": torch.full((2, 1, 3, 3), float("nan")), "bias": torch.zeros(2)}
    torch.save({"model": diverged, "critic": {"weight": torch.zeros(1)}}, tmp_path / "net.pth")
    with pytest.raises(CheckpointMismatch, match=r"net\.pth: model: weight holds NaN"):
        load_initial(nn.Conv2d(1, 2, 3), tmp_path / "net.pth", dict)
