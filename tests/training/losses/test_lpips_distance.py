import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from training.errors import DataMissing
from training.losses.lpips_distance import Lpips, load_lpips

ROOT = Path(__file__).resolve().parents[3]
FEATURES = ROOT / "../shared/data/features/alexnet_imagenet_features.safetensors"


def _picture(red, green):
    """Make a flat picture whose red and green have these values after LPIPS's scaling, and blue 0."""
    values = [(-0.030 + 0.458 * red), (-0.088 + 0.448 * green), -0.188]
    return torch.tensor(values).view(1, 3, 1, 1).expand(1, 3, 64, 64)


def _copying_net(heads):
    """Make LPIPS whose first two layers copy red and green, with the same `heads` at both."""
    net: Any = Lpips()  # Any, as its layers are not typed
    for convolution in net.features.values():
        torch.nn.init.zeros_(convolution.weight)
        torch.nn.init.zeros_(convolution.bias)
    for channel in range(2):
        net.features["0"].weight[channel, channel, 5, 5] = 1
        net.features["3"].weight[channel, channel, 2, 2] = 1
    for layer in range(2):
        net.heads[layer][0, :2, 0, 0] = torch.tensor(heads)
    return net


def test_distance_of_two_pure_colours_is_what_one_computes_by_hand():
    net = _copying_net((0.3, 0.2))
    red, green, both = _picture(1, 0), _picture(0, 1), _picture(2, 2)
    # each layer: unit vectors (1, 0) and (0, 1), squared differences 1 and 1, weights 0.3 and 0.2
    assert net(red, green).item() == pytest.approx(2 * 0.5, abs=1e-5)
    half = 1 / math.sqrt(2)
    assert net(red, both).item() == pytest.approx(2 * (0.3 * (1 - half) ** 2 + 0.2 * 0.5), abs=1e-5)
    assert net(both, both).item() == 0


def test_distance_of_a_batch_is_that_of_each():
    net = _copying_net((0.3, 0.2))
    found = net(torch.cat([_picture(1, 0), _picture(1, 0)]), torch.cat([_picture(0, 1), _picture(1, 0)]))
    assert found.tolist() == pytest.approx([1.0, 0.0], abs=1e-5)


def test_files_give_the_weights_and_heads_come_with_the_package(tmp_path):
    net = Lpips()
    state = {key: tensor for key, tensor in net.state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    loaded = load_lpips(tmp_path / "alexnet.safetensors")
    assert torch.equal(loaded.features["6"].weight, net.features["6"].weight)
    for head in loaded.heads:  # the authors constrain them to be positive
        assert head.min() >= 0
        assert head.max() > 0.01


def test_missing_and_foreign_files_are_named(tmp_path):
    with pytest.raises(DataMissing, match=r"nothing\.safetensors: no such file; docs/training\.md says how"):
        load_lpips(tmp_path / "nothing.safetensors")
    save_file({"features.0.weight": torch.zeros(1)}, tmp_path / "half.safetensors")
    with pytest.raises(DataMissing, match=r"half\.safetensors"):
        load_lpips(tmp_path / "half.safetensors")
    state = {key: tensor for key, tensor in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    torch.save({"lin0": torch.zeros(1)}, tmp_path / "heads.pth")
    with pytest.raises(DataMissing, match=r"heads\.pth: not the linear heads"):
        load_lpips(tmp_path / "alexnet.safetensors", tmp_path / "heads.pth")
    (tmp_path / "page.pth").write_text("<!doctype html>")
    with pytest.raises(DataMissing, match=r"page\.pth: not the linear heads") as refused:
        load_lpips(tmp_path / "alexnet.safetensors", tmp_path / "page.pth")
    assert "weights_only" not in str(refused.value)


@pytest.mark.skipif(not FEATURES.is_file(), reason="needs ../shared/data, which is not part of the repository")
def test_with_the_real_weights_it_is_the_distance_of_the_authors_package():
    one, other = (
        np.asarray(Image.open(ROOT / f"tests/data/{name}.jpg").convert("RGB").crop((0, 0, 128, 160)))
        for name in ("crocs", "dress")
    )
    net = load_lpips(FEATURES)
    # lpips 0.1.4, LPIPS(net="alex"), with the same AlexNet weights
    assert net.distance(one, other) == pytest.approx(0.681182, abs=2e-5)
    assert net.distance(one, np.roll(one, 3, 1)) == pytest.approx(0.061130, abs=2e-5)
