"""Losses weighted by their gradients with respect to the picture."""

from __future__ import annotations

import pytest
import torch

from training.loop.balance import LossBalancer
from training.loop.runtime import Runtime

RUNTIME = Runtime(torch.device("cpu"), "fp32")


def losses(picture: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
    """Return two losses on different channels, whose gradients do not overlap."""
    return {"difference": scale * picture[:, 0].mean(), "adversarial": 1e-3 * picture[:, 1].mean()}


def picture() -> torch.Tensor:
    return torch.rand(2, 3, 4, 4, requires_grad=True)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_shares_hold_whatever_the_losses_sizes_are(scale: float) -> None:
    shown = picture()
    balancer = LossBalancer({"difference": 1.0, "adversarial": 0.5, "matching": 0.0}, RUNTIME)
    gradient = balancer.gradient(losses(shown, scale), shown, balancer.shares({}), "anew")
    lengths = gradient[:, :2].flatten(2).norm(dim=2).sum(0)
    assert torch.allclose(lengths, torch.tensor([1.0, 0.5]), rtol=1e-2)


def test_a_ramp_holds_its_own_loss_back_alone() -> None:
    shown = picture()
    balancer = LossBalancer({"difference": 1.0, "adversarial": 0.5}, RUNTIME)
    gradient = balancer.gradient(losses(shown), shown, balancer.shares({"adversarial": 0.0}), "anew")
    assert gradient[:, 0].abs().min() > 0
    assert gradient[:, 1].abs().max() == 0


def test_sizes_are_followed_slowly_and_come_back() -> None:
    balancer, shown = LossBalancer({"difference": 1.0}, RUNTIME), picture()

    def length(scale: float, number: int) -> float:
        shares, measurement = balancer.shares({}), balancer.measurement(number)
        return float(balancer.gradient(losses(shown, scale), shown, shares, measurement).flatten(1).norm(dim=1).sum())

    assert length(1.0, 0) == pytest.approx(1, rel=1e-3)
    assert length(2.0, 7) == pytest.approx(2, rel=1e-3)
    assert length(2.0, 25) == pytest.approx(2 / 1.3, rel=1e-3)
    other = LossBalancer({"difference": 1.0}, RUNTIME)
    other.load(balancer.state())
    one, two = (each.gradient(losses(shown), shown, each.shares({}), "none") for each in (other, balancer))
    assert torch.equal(one, two)
