"""The features of VGG16's first layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from safetensors.torch import save_file

from training.errors import DataMissing
from training.losses.vgg16 import FeatureDistance, NormalisedFeatures, VGG16Features, load_features


@pytest.mark.parametrize("blocks", [3, 4, 5])
def test_activations_and_poolings_have_their_sizes_and_nothing_is_trained(blocks: int) -> None:
    net = VGG16Features(blocks)
    found = net(torch.rand(1, 3, 32, 32))
    shapes = [(1, 64, 32, 32), (1, 128, 16, 16), (1, 256, 8, 8), (1, 512, 4, 4), (1, 512, 2, 2)]
    assert [tuple(layer.shape) for layer in found.activations] == shapes[:blocks]
    assert [tuple(layer.shape) for layer in found.pooled] == [(1, 64, 16, 16), (1, 128, 8, 8), (1, 256, 4, 4)]
    assert not any(parameter.requires_grad for parameter in net.parameters())


@torch.no_grad()
def test_weights_are_torchvisions_on_imagenet_scale(tmp_path: Path) -> None:
    source = VGG16Features()
    save_file(
        {key: tensor for key, tensor in source.state_dict().items() if "scale" not in key}, tmp_path / "vgg.safetensors"
    )
    image = torch.rand(1, 3, 16, 16)
    x = (image - torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(
        1, 3, 1, 1
    )
    for index in ("0", "2"):
        x = F.relu(F.conv2d(x, source.features[index].weight, source.features[index].bias, padding=1))
    found = load_features(tmp_path / "vgg.safetensors")(image)
    assert torch.allclose(found.activations[0], x, atol=1e-5)
    assert torch.allclose(found.pooled[0], F.max_pool2d(x, 2), atol=1e-5)


@pytest.mark.parametrize("blocks", [3, 4, 5])
def test_as_many_blocks_are_used_as_the_file_holds(tmp_path: Path, blocks: int) -> None:
    source = VGG16Features(blocks)
    state = {key: tensor.half() for key, tensor in source.state_dict().items() if "scale" not in key}
    save_file(state, tmp_path / "vgg.safetensors")
    loaded = load_features(tmp_path / "vgg.safetensors")
    assert len(loaded.blocks) == blocks
    for key, tensor in state.items():
        assert torch.equal(loaded.state_dict()[key], tensor.float()), key


def write_features(path: Path, blocks: int) -> Path:
    source = VGG16Features(blocks)
    save_file({key: tensor for key, tensor in source.state_dict().items() if "scale" not in key}, path)
    return path


def test_fewer_blocks_than_the_file_holds_can_be_asked_for_and_not_more(tmp_path: Path) -> None:
    path = write_features(tmp_path / "vgg.safetensors", 4)
    assert len(load_features(path, 3).blocks) == 3
    with pytest.raises(DataMissing, match=r"holds 4 blocks of VGG16 instead of 5: features\.0 to features\.28"):
        load_features(path, 5)


@torch.no_grad()
@pytest.mark.parametrize("blocks", [3, 5])
def test_the_distance_weighs_each_block(blocks: int) -> None:
    torch.manual_seed(0)
    features = NormalisedFeatures(VGG16Features(blocks))
    image, other = torch.rand(2, 1, 3, 32, 32)
    wanted = features(image)
    alone = [
        float(FeatureDistance(features, [float(i == n) for i in range(blocks)])(other, wanted)) for n in range(blocks)
    ]
    assert all(each > 0 for each in alone)
    weights = [0.5, 1.0, 1.5, 2.0, 3.0][:blocks]
    found = float(FeatureDistance(features, weights)(other, wanted))
    assert found == pytest.approx(sum(weight * each for weight, each in zip(weights, alone, strict=True)), rel=1e-4)
    assert float(FeatureDistance(features, weights)(image, wanted)) == 0


def test_a_file_that_is_no_vgg_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"absent\.safetensors"):
        load_features(tmp_path / "absent.safetensors")
    save_file({"features.0.weight": torch.rand(1)}, tmp_path / "other.safetensors")
    with pytest.raises(DataMissing, match="torchvision"):
        load_features(tmp_path / "other.safetensors")
