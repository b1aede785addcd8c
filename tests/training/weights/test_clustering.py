"""Clusters of an encoder's features: K-means, and the styles of a trained generator's classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from export.checkpoint import read_checkpoint
from export.generators.pix2pixhd.generator import Pix2PixHD
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from export.recognition import recognise
from training.__main__ import app
from training.errors import ConfigInvalid
from training.pix2pixhd_config import Pix2PixHDConfig
from training.weights.clustering import cluster_features, k_means

Config = Callable[..., Pix2PixHDConfig]
ENCODED = {"label_nc": 13, "ngf": 2, "downsamplings": 2, "blocks": 1}
ENCODED |= {"features": 3, "encoder_width": 2, "encoder_downsamplings": 2}


def test_clouds_of_points_have_their_middles_as_clusters() -> None:
    middles = np.array([[0, 0, 0], [5, 0, 0], [0, 5, 0]], np.float32)
    noise = np.random.default_rng(1).normal(0, 0.1, (3, 200, 3)).astype(np.float32)
    found = k_means((middles[:, None] + noise).reshape(-1, 3), 3, seed=2)
    gaps = np.linalg.norm(found[:, None] - middles[None], axis=2)
    assert sorted(gaps.argmin(1)) == [0, 1, 2]
    assert gaps.min(1).max() < 0.05


def test_fewer_points_than_clusters_are_repeated() -> None:
    points = np.array([[1.0], [2.0], [2.0]], np.float32)
    assert k_means(points, 4, seed=0).flatten().tolist() == [1, 2, 1, 2]


@pytest.fixture
def weights(pix2pixhd_config: Config, tmp_path: Path, save_untrained: Callable[..., Path]) -> Path:
    options = pix2pixhd_config(generator=ENCODED).generator
    return save_untrained(Pix2PixHD().build(options), tmp_path / "generator.pth")


def test_classes_of_the_data_have_styles_and_others_have_none(pix2pixhd_config: Config, weights: Path) -> None:
    table = cluster_features(pix2pixhd_config(generator=ENCODED), weights, 3)["clusters"]
    assert table.shape == (13, 3, 3)
    shown = [label for label in range(13) if table[label].abs().sum()]
    assert shown == [1, 2, 3, 4, 6]
    assert len(table[2].unique(dim=0)) > 1
    assert table.abs().max() <= 1  # the encoder ends in a tanh


def test_ids_that_are_no_class_of_the_generator_have_no_style(
    pix2pixhd_config: Config, tmp_path: Path, save_untrained: Callable[..., Path]
) -> None:
    fewer = pix2pixhd_config(generator=ENCODED).generator.model_copy(update={"label_nc": 4})
    weights = save_untrained(Pix2PixHD().build(fewer), tmp_path / "fewer.pth")
    config = pix2pixhd_config(generator=ENCODED).model_copy(update={"generator": fewer})  # the data has ids 4 and 6
    table = cluster_features(config, weights, 3)["clusters"]
    assert [label for label in range(4) if table[label].abs().sum()] == [1, 2, 3]


def test_the_command_writes_a_file_that_is_recognised_with_its_styles(
    pix2pixhd_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    weights: Path,
    tmp_path: Path,
) -> None:
    config = write_config(pix2pixhd_run(generator=ENCODED), tmp_path / "run.toml")
    arguments = ["cluster", str(config), str(weights), "-o", str(tmp_path / "styled.pth"), "--count", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = recognise(read_checkpoint(tmp_path / "styled.pth").parts, None, {})
    assert isinstance(found.options, Pix2PixHDOptions)
    assert (found.options.clusters, found.options.features) == (2, 3)
    assert Pix2PixHD().interface(found.options).inputs[-1].name == "latent"


def test_a_generator_without_an_encoder_has_nothing_to_cluster(pix2pixhd_config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"generator\.features is 0"):
        cluster_features(pix2pixhd_config(), tmp_path / "none.pth", 3)


def test_k_means_is_a_function_of_its_seed() -> None:
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(1)).numpy()
    assert np.array_equal(k_means(points, 5, seed=3), k_means(points, 5, seed=3))
