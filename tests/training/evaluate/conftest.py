"""Fixtures of the evaluation tests."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn


class MeanColour(nn.Module):
    """A feature net that returns the mean of each channel."""

    def forward(self, pictures: Tensor, return_features: bool = False) -> Tensor:
        assert return_features
        return pictures.float().mean((2, 3))


@pytest.fixture(scope="session")
def feature_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a TorchScript file with the interface of FID's Inception net."""
    path = tmp_path_factory.mktemp("nets") / "net.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer torch deprecates TorchScript, the format of the public file
        torch.jit.script(MeanColour()).save(str(path))
    return path
