"""A generating net, evaluated as a set of pictures against photographs."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from engines.base import Array
from engines.manifest import read_manifest
from export.generators.dcgan import DCGAN, DCGANOptions
from export.generators.family import Interface
from training.__main__ import app
from training.errors import ConfigInvalid, DataMissing
from training.evaluate.cases import Protocol
from training.evaluate.generated import arrange_grid, evaluate_generated
from training.evaluate.painters import NetPainter
from training.evaluate.patch_features import PatchFeatures
from training.losses.vgg16 import VGG16Features


class Drawing(NetPainter):
    """A net that returns pictures from a list, one after another."""

    def __init__(self, pictures: list[np.ndarray], interface: Interface | None = None) -> None:
        super().__init__("drawing", interface or DCGAN().interface(DCGANOptions(nz=4, ngf=2)))
        self._left = iter(pictures)

    def _run(self, feed: dict[str, Array]) -> Array:
        assert feed["latent"].shape == (1, 4)
        return np.float32(next(self._left)).transpose(2, 0, 1)[None] / 255

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def vgg():
    torch.manual_seed(0)
    return PatchFeatures(VGG16Features())


@pytest.fixture
def photographs(tmp_path, smooth_picture):
    pictures = [smooth_picture(index, 64, 64) for index in range(6)]
    for index, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
    return tmp_path, pictures


def test_the_photographs_themselves_are_nearer_than_noise_and_as_different_from_one_another(photographs, vgg):
    folder, pictures = photographs
    noisy = list(np.random.default_rng(0).integers(0, 256, (6, 64, 64, 3)))
    protocol = Protocol(data=folder, size=64)
    same, drawn = evaluate_generated(Drawing(pictures), protocol, vgg)
    noise, _ = evaluate_generated(Drawing(noisy), protocol, vgg)
    assert same["model"]["all"]["kid"] < noise["model"]["all"]["kid"]
    assert same["model"]["all"]["diversity"] == same["photographs"]["all"]["diversity"] > 0
    assert same["model"]["all"]["pictures"] == 6
    assert all(np.array_equal(one, other) for one, other in zip(drawn, pictures, strict=True))


def test_a_net_that_draws_one_picture_for_ever_has_no_diversity(photographs, vgg):
    folder, pictures = photographs
    figures, _ = evaluate_generated(Drawing([pictures[0]] * 6), Protocol(data=folder, size=64), vgg)
    assert figures["model"]["all"]["diversity"] == 0


def test_what_cannot_be_measured_is_refused(photographs, vgg):
    folder, pictures = photographs
    with pytest.raises(DataMissing, match="--vgg-features"):
        evaluate_generated(Drawing(pictures), Protocol(data=folder, size=64), None)
    with pytest.raises(DataMissing, match="divided into two sets of at least two"):
        evaluate_generated(Drawing(pictures), Protocol(data=folder, size=64, limit=3), vgg)
    grey = DCGAN().interface(DCGANOptions(nz=4, ngf=2, nc=1))
    with pytest.raises(ConfigInvalid, match="only RGB pictures drawn from `latent` alone"):
        evaluate_generated(Drawing(pictures, grey), Protocol(data=folder, size=64), vgg)


def test_a_grid_is_the_largest_square_of_the_pictures():
    pictures = [np.full((2, 3, 3), value, np.uint8) for value in (0, 51, 102, 153, 204)]
    grid = arrange_grid(pictures)
    assert grid.shape == (3, 4, 6)
    assert grid.unique().tolist() == pytest.approx([0, 0.2, 0.4, 0.6])


@pytest.fixture
def ship(photographs, save_untrained, tmp_path):
    """Ship an untrained DCGAN, evaluated against the photographs, with further flags."""
    folder, _ = photographs
    torch.manual_seed(0)
    save_file(VGG16Features().state_dict(), tmp_path / "vgg.safetensors")

    def run(*more, channels=3):
        net = DCGAN().build(DCGANOptions(nz=4, ngf=2, nc=channels))
        checkpoint = save_untrained(net, tmp_path / "generator.pth")
        facts = ["--trained-on", "Six.", "--run", "No step.", "--licence", "CC0", "--failures", "It draws noise."]
        call = ["ship", checkpoint, "--name", "drawn", "--data", folder, "--images", folder]
        call += ["--output", tmp_path / "models", "--engine", "onnxrt"]
        return CliRunner().invoke(app, [*map(str, (*call, *more)), *facts])

    return run


def test_a_net_that_draws_ships_with_its_figures(ship, tmp_path):
    done = ship("--reports", tmp_path / "reports", "--vgg-features", tmp_path / "vgg.safetensors")
    assert done.exit_code == 0, done.output
    (report,) = (tmp_path / "reports").glob("*.json")
    figures = json.loads(report.read_text())["figures"]["model"]["all"]
    manifest = read_manifest(tmp_path / "models/drawn/1")
    assert sorted(manifest.quality.values()) == sorted([figures["kid"], figures["diversity"]])
    card = (tmp_path / "models/drawn/1/card.md").read_text("utf-8")
    assert "pictures drawn from seed 0" in card
    assert "| all | 6 | photographs |" in card
    with Image.open(next((tmp_path / "reports").glob("*.png"))) as sheet:
        assert sheet.size == (128, 128)


@pytest.mark.parametrize(
    ("flags", "channels", "advice"),
    [
        ([], 3, "give --vgg-features"),
        (["--limit", "3"], 3, "divided into two sets of at least two"),
        ([], 1, "only RGB pictures drawn from `latent` alone"),
    ],
)
def test_a_net_that_draws_and_cannot_be_measured_is_refused_before_the_export(ship, tmp_path, flags, channels, advice):
    vgg = ["--vgg-features", tmp_path / "vgg.safetensors"] if flags or channels == 1 else []
    done = ship(*flags, *vgg, channels=channels)
    assert done.exit_code in (1, 2), "data, or the command itself"
    assert advice in done.output
    assert "building" not in done.output
    assert list((tmp_path / "models").iterdir()) == []
