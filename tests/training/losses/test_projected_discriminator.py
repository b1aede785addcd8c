"""The discriminator on VGG16's features."""

from __future__ import annotations

import torch

from training.losses.multi_scale_discriminator import generator_loss, gradient_penalty
from training.losses.projected_discriminator import ProjectedDiscriminator
from training.losses.vgg16 import NormalisedFeatures, VGG16Features


def judge(blocks: int = 5) -> ProjectedDiscriminator:
    return ProjectedDiscriminator(NormalisedFeatures(VGG16Features(blocks)), 4, torch.Generator().manual_seed(0))


def test_there_is_a_logit_for_every_position_of_the_third_block_and_each_deeper_one() -> None:
    shown = torch.rand(2, 4, 64, 96)
    for blocks in (3, 4, 5):
        found = judge(blocks)(shown)
        shapes = [(2, 1, 8, 12), (2, 1, 4, 6), (2, 1, 2, 3)]
        assert [tuple(scale.shape) for scale in found.logits] == shapes[: blocks - 2]
        assert found.features == []


def test_vgg16_is_neither_trained_nor_saved_with_it() -> None:
    net = judge()
    assert {key.split(".")[0] for key in net.state_dict()} == {"heads"}
    net.requires_grad_(requires_grad=True)
    generator_loss(net(torch.rand(1, 4, 32, 32)).logits, torch.ones(1, 1, 32, 32)).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    (features,) = net._frozen
    assert not any(parameter.requires_grad for parameter in features.parameters())


def test_what_is_drawn_in_the_hole_changes_its_loss_and_its_penalty_has_a_gradient() -> None:
    net, hole = judge(), torch.zeros(1, 1, 64, 64)
    hole[..., 16:48, 16:48] = 1
    picture = torch.rand(1, 3, 64, 64, requires_grad=True)
    generator_loss(net(torch.cat([picture, hole], 1)).logits, hole).backward()
    assert picture.grad is not None
    assert float((picture.grad * hole).abs().sum()) > 0
    gradient_penalty(net, picture, hole).backward()
    weights = [weight.grad for name, weight in net.named_parameters() if name.endswith("mixed.weight")]
    assert len(weights) == 3
    assert all(weight is not None and float(weight.abs().sum()) > 0 for weight in weights)


def test_no_gradient_of_the_hole_is_computed_which_a_gpu_has_no_deterministic_code_for() -> None:
    shown = torch.rand(1, 4, 32, 32, requires_grad=True)
    generator_loss(judge()(shown).logits, torch.ones(1, 1, 32, 32)).backward()
    assert shown.grad is not None
    assert float(shown.grad[:, :3].abs().sum()) > 0
    assert float(shown.grad[:, 3:].abs().sum()) == 0
