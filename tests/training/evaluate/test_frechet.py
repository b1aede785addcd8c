import numpy as np
import pytest
import torch

from training.errors import DataMissing
from training.evaluate.frechet import FeatureNet, frechet_distance


def test_distance_of_two_gaussians_is_the_closed_form():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((400, 3))
    base = (base - base.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(base, rowvar=False))).T  # mean 0, identity
    one, other = base * [1, 2, 3], base * [2, 2, 5] + [0.5, 0, -1]
    # diagonal covariances: |m|² + Σ (s1 - s2)²
    assert frechet_distance(one, other) == pytest.approx(0.25 + 1 + 1 + 0 + 4)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9)


def test_distance_of_correlated_features_does_not_depend_on_their_order():
    rng = np.random.default_rng(1)
    one, other = rng.standard_normal((50, 4)) @ rng.standard_normal((4, 4)), rng.standard_normal((60, 4))
    assert frechet_distance(one, other) == pytest.approx(frechet_distance(other, one))
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert frechet_distance(one @ turn, other @ turn) == pytest.approx(frechet_distance(one, other))


def test_fewer_pictures_than_features_still_give_a_number():
    rng = np.random.default_rng(2)
    one, other = rng.standard_normal((4, 32)), rng.standard_normal((5, 32))
    assert 0 < frechet_distance(one, other) < 1000


def test_one_picture_has_no_distance():
    two = np.random.default_rng(3).standard_normal((2, 4))
    with pytest.raises(DataMissing, match="FID needs at least two pictures, but there are 1"):
        frechet_distance(two[:1], two)


def test_net_file_is_asked_for_features_of_8_bit_pictures(feature_net):
    net = FeatureNet(feature_net)
    black, white = np.zeros((8, 8, 3), np.uint8), np.full((12, 6, 3), 255, np.uint8)
    assert net.features([black, white]).tolist() == [[0, 0, 0], [255, 255, 255]]


def test_file_that_is_no_net_is_named(tmp_path):
    (tmp_path / "net.pt").write_bytes(b"nothing")
    with pytest.raises(DataMissing, match=r"net\.pt: not a TorchScript feature net"):
        FeatureNet(tmp_path / "net.pt")
    torch.save({}, tmp_path / "state.pt")
    with pytest.raises(DataMissing, match=r"state\.pt"):
        FeatureNet(tmp_path / "state.pt")
