"""Fixtures of the training tests: generated pictures, small photographs of the repository, and tiny runs of both
models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from training.config import PConvConfig, Pix2PixConfig
from training.data.label_maps import FACADE_COLOURS
from training.dcgan_config import DCGANConfig
from training.fill_config import FillConfig
from training.pdgan_config import PDGANConfig
from training.pgn_config import PGNConfig
from training.pix2pixhd_config import Pix2PixHDConfig

PHOTOGRAPHS = Path(__file__).resolve().parents[1] / "data"
TINY = {
    "seed": 3,
    "precision": "fp32",
    "compile": False,
    "deterministic": True,
    "log_every": 1,
    "checkpoint_every": 2,
    "sheet_every": 100,
    "sheet_pictures": 2,
    "phase": [{"steps": 4, "batch": 2, "learning_rate": 1e-3, "warm_up": 2}],
}


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Use one torch thread: tiny nets gain nothing from more, and busy machines lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def photographs() -> Path:
    """Make a folder with a few photographs."""
    return PHOTOGRAPHS


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of side-by-side pairs: a photograph left, its edges right."""
    folder = tmp_path_factory.mktemp("pairs")
    for path in sorted(PHOTOGRAPHS.glob("*s.jpg")):
        photograph = cv2.resize(cv2.imread(str(path)), (64, 64), interpolation=cv2.INTER_AREA)
        edges = cv2.cvtColor(cv2.Canny(photograph, 60, 120), cv2.COLOR_GRAY2BGR)
        cv2.imwrite(str(folder / f"{path.stem}.png"), np.concatenate([photograph, edges], 1))
    return folder


@pytest.fixture(scope="session")
def facades(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of side-by-side pairs in the layout of CMP Facades: a photograph left, class colours right."""
    folder, table = tmp_path_factory.mktemp("facades"), np.array(list(FACADE_COLOURS.values()), np.uint8)
    for number, path in enumerate(sorted(PHOTOGRAPHS.glob("*s.jpg"))):
        photograph = cv2.resize(cv2.imread(str(path)), (64, 64), interpolation=cv2.INTER_AREA)
        labels = np.full((64, 64), 1, np.uint8)
        labels[8:, 6 + 4 * number : 58] = 2
        labels[14:26, 20:30], labels[26:30, 20:30], labels[44:, 34:48] = 3, 6, 4
        cv2.imwrite(str(folder / f"{path.stem}.png"), np.concatenate([photograph, table[labels - 1][..., ::-1]], 1))
    return folder


@pytest.fixture
def partial_run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny partial-convolution run; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "pconv",
            "output": str(tmp_path / "run"),
            "generator": {"levels": 3, "width": 4},
            "data": {"path": str(PHOTOGRAPHS), "load_side": 40, "crop": 32, "threads": 1},
            **options,
        }

    return make


@pytest.fixture
def pix2pix_run(tmp_path: Path, pairs: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny pix2pix run; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "pix2pix",
            "output": str(tmp_path / "run"),
            "discriminator_width": 4,
            "discriminator_layers": 2,
            "generator": {"net": "resnet_6blocks", "ngf": 4, "dropout": True},
            "data": {"path": str(pairs), "layout": "pairs", "direction": "BtoA", "load_side": 36, "crop": 32},
            **options,
        }

    return make


@pytest.fixture
def fill_run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny run of FillNet with its judge; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "fillnet",
            "output": str(tmp_path / "run"),
            "generator": {"widths": "8,8", "encoder": "1,0", "decoder": "1,1"},
            "shares": {"perceptual": 0.0},
            "judge": {"widths": [4, 4, 4, 4, 4, 4], "ramp": [0, 2], "penalty_every": 2},
            "data": {"path": str(PHOTOGRAPHS), "load_side": 72, "crop": 32, "threads": 1},
            **options,
        }

    return make


@pytest.fixture
def dcgan_run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny DCGAN run; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "dcgan",
            "output": str(tmp_path / "run"),
            "discriminator_width": 2,
            "spectral_norm": True,
            "augment": True,
            "generator": {"nz": 4, "ngf": 2},
            "data": {"path": str(PHOTOGRAPHS), "load_side": 72, "crop": 64, "threads": 1},
            **options,
        }

    return make


@pytest.fixture
def pix2pixhd_run(tmp_path: Path, facades: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny pix2pixHD run; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "pix2pixhd",
            "output": str(tmp_path / "run"),
            "discriminator_width": 4,
            "discriminator_layers": 2,
            "generator": {"label_nc": 13, "ngf": 4, "downsamplings": 2, "blocks": 1},
            "data": {"path": str(facades), "layout": "facades", "direction": "BtoA", "load_side": 36, "crop": 32},
            **options,
        }

    return make


@pytest.fixture
def pgn_run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny PGN run; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "pgn",
            "output": str(tmp_path / "run"),
            "discriminator_width": 1,
            "generator": {"stages": 2, "width": 2},
            "data": {"path": str(PHOTOGRAPHS), "load_side": 140, "crop": 128, "threads": 1},
            **options,
        }

    return make


@pytest.fixture
def pdgan_run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return the options of a tiny PD-GAN run; keywords override them."""

    def make(**options: Any) -> dict[str, Any]:
        return {
            **TINY,
            "model": "pdgan",
            "output": str(tmp_path / "run"),
            "discriminator_width": 2,
            "discriminator_layers": 2,
            "generator": {"prior_width": 2, "ngf": 2, "z_dim": 4},
            "data": {"path": str(PHOTOGRAPHS), "load_side": 260, "crop": 256, "threads": 1},
            **options,
        }

    return make


@pytest.fixture
def pdgan_config(pdgan_run: Callable[..., dict[str, Any]]) -> Callable[..., PDGANConfig]:
    """Return the same options, validated."""
    return lambda **options: PDGANConfig.model_validate(pdgan_run(**options))


@pytest.fixture
def pgn_config(pgn_run: Callable[..., dict[str, Any]]) -> Callable[..., PGNConfig]:
    """Return the same options, validated."""
    return lambda **options: PGNConfig.model_validate(pgn_run(**options))


@pytest.fixture
def pix2pixhd_config(pix2pixhd_run: Callable[..., dict[str, Any]]) -> Callable[..., Pix2PixHDConfig]:
    """Return the same options, validated."""
    return lambda **options: Pix2PixHDConfig.model_validate(pix2pixhd_run(**options))


@pytest.fixture
def dcgan_config(dcgan_run: Callable[..., dict[str, Any]]) -> Callable[..., DCGANConfig]:
    """Return the same options, validated."""
    return lambda **options: DCGANConfig.model_validate(dcgan_run(**options))


@pytest.fixture
def fill_config(fill_run: Callable[..., dict[str, Any]]) -> Callable[..., FillConfig]:
    """Return the same options, validated."""
    return lambda **options: FillConfig.model_validate(fill_run(**options))


@pytest.fixture
def partial_config(partial_run: Callable[..., dict[str, Any]]) -> Callable[..., PConvConfig]:
    """Return the same options, validated."""
    return lambda **options: PConvConfig.model_validate(partial_run(**options))


@pytest.fixture
def pix2pix_config(pix2pix_run: Callable[..., dict[str, Any]]) -> Callable[..., Pix2PixConfig]:
    """Return the same options, validated."""
    return lambda **options: Pix2PixConfig.model_validate(pix2pix_run(**options))


@pytest.fixture(scope="session")
def write_config() -> Callable[[dict[str, Any], Path], Path]:
    """Format options as a config file; JSON's scalars and lists are valid TOML."""
    return as_toml


def as_toml(options: dict[str, Any], path: Path) -> Path:
    """Write options as a config file; JSON's scalars and lists are valid TOML."""
    tables = [(f"[{key}]", value) for key, value in options.items() if isinstance(value, dict)]
    tables += [("[[phase]]", phase) for phase in options["phase"]]
    top = {key: value for key, value in options.items() if key != "phase" and not isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in top.items()]
    for header, table in tables:
        lines += [header, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def _smooth_picture(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    noise = np.random.default_rng(seed).uniform(0, 255, (8, 8, 3)).astype(np.float32)
    values = cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(values, 0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def smooth_picture() -> Callable[[int, int, int], NDArray[np.uint8]]:
    """Make a random picture of mostly low frequencies, as in a photograph, from seed, height and width."""
    return _smooth_picture


@pytest.fixture(scope="session")
def save_untrained() -> Callable[[nn.Module, Path], Path]:
    """Save a generator with random weights that keep its activations in bounds."""

    def save(net: nn.Module, path: Path) -> Path:
        generator = torch.Generator().manual_seed(0)
        for key, tensor in net.state_dict().items():
            if key.endswith("mask_conv.weight"):
                tensor.fill_(1)
            elif tensor.ndim > 1:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) / math.sqrt(tensor[0].numel()))
        torch.save(net.state_dict(), path)
        return path

    return save
