import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from engines.manifest import read_manifest
from export.generators.pconv.unet import PConv, PConvOptions
from export.generators.pix2pixhd.generator import Pix2PixHD
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from training.__main__ import app

SOURCES = {
    "sources": [
        {"name": "wallpapers", "licence": "CC0", "kept": 1234},
        {"name": "scenes", "licence": "U: not stated", "kept": 56},
    ]
}


@pytest.fixture
def checkpoint(tmp_path, save_untrained):
    return save_untrained(PConv().build(PConvOptions(levels=2, width=2)), tmp_path / "generator.pth")


@pytest.fixture
def held_out(tmp_path, smooth_picture):
    folder = tmp_path / "heldout"
    folder.mkdir()
    for index in range(2):
        Image.fromarray(smooth_picture(index, 260, 300)).save(folder / f"{index}.png")
    return folder


def _ship(checkpoint, held_out, output, *more):
    facts = ["--trained-on", "1,290 photographs.", "--run", "Seven steps of 2.", "--licence", "CC0"]
    facts += ["--failures", "It paints noise."]
    arguments = [checkpoint, "--name", "tiny", "--data", held_out, "--images", held_out, "--output", output]
    return CliRunner().invoke(app, ["ship", *map(str, arguments), *facts, "--engine", "onnxrt", *map(str, more)])


def test_shipped_model_carries_its_figures_sources_run_and_failures(checkpoint, held_out, tmp_path):
    (tmp_path / "photos.json").write_text(json.dumps(SOURCES))
    (tmp_path / "models/tiny/1").mkdir(parents=True)
    done = _ship(
        checkpoint, held_out, tmp_path / "models", "--sources", tmp_path / "photos.json", "--reports", tmp_path / "r"
    )
    assert done.exit_code == 0, done.output
    folder = tmp_path / "models/tiny/2"
    assert sorted(path.name for path in folder.iterdir()) == ["card.md", "manifest.json", "model.onnx"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["tiny"]
    manifest = read_manifest(folder)
    assert manifest.key == "tiny/2"
    report = json.loads((tmp_path / "r/heldout-256-crops.json").read_text())
    assert report["model"]["name"] == "tiny/2"
    assert report["model"]["onnx_sha256"] == manifest.onnx_sha256  # what was measured is what was published
    assert manifest.quality["heldout, 256² crops: PSNR dB"] == report["figures"]["model"]["all"]["psnr_db"]
    assert manifest.quality["heldout, whole, longer side 512: PSNR over Telea dB"] < 0
    assert (manifest.licence, manifest.training_data) == ("CC0", "1,290 photographs. Seven steps of 2.")
    card = (folder / "card.md").read_text("utf-8")
    for said in (
        "| wallpapers | 1,234 | CC0 |",
        "Seven steps of 2.",
        "It paints noise.",
        "## Measured: heldout, whole, longer side 512",
        "| all | 2 | telea |",
        "Worst of heldout, 256² crops by L1",
    ):
        assert said in card
    assert (tmp_path / "r/heldout-whole-longer-side-512.png").is_file()
    for kind in ("boxes", "blobs"):
        thick = json.loads((tmp_path / f"r/heldout-256-crops-{kind}.json").read_text())
        assert manifest.quality[f"heldout, 256² crops, {kind}: L1"] == thick["figures"]["model"]["all"]["l1"]
        assert f"## Measured: heldout, whole, longer side 512, {kind}" in card


def test_a_model_of_class_ids_is_measured_on_label_colours_and_served_at_its_side(
    facades, held_out, save_untrained, tmp_path
):
    net = Pix2PixHD().build(Pix2PixHDOptions(label_nc=13, ngf=2, downsamplings=2, blocks=1))
    checkpoint = save_untrained(net, tmp_path / "labels.pth")
    flags = ["--data", facades, "--pairs", "BtoA", "--labels", "facades", "--option", "side=64"]
    done = _ship(checkpoint, held_out, tmp_path / "models", *flags)
    assert done.exit_code == 0, done.output
    manifest = read_manifest(tmp_path / "models/tiny/1")
    assert manifest.quality.keys() == {
        f"{facades.name}, pairs BtoA, class ids: {name}" for name in ("PSNR dB", "SSIM", "L1")
    }
    assert list(manifest.size.tile_sizes()) == [(64, 64)]


def test_an_option_without_a_value_is_refused_before_any_work(checkpoint, held_out, tmp_path):
    done = _ship(checkpoint, held_out, tmp_path / "models", "--option", "side")
    assert done.exit_code == 2
    assert "write KEY=VALUE" in done.output


def test_nothing_is_published_where_measuring_fails(checkpoint, tmp_path, held_out):
    whole = (held_out / "0.png").read_bytes()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.png").write_bytes(whole[: len(whole) // 2])
    done = _ship(checkpoint, held_out, tmp_path / "models", "--data", tmp_path / "broken")
    assert done.exit_code == 1
    assert "measuring on broken" in done.output
    assert "a.png: not a picture that can be decoded" in done.output
    assert "publishing" not in done.output, "what is measured is not published yet"
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("side", "advice"), [(None, "no pictures"), (200, "of 200×300 is smaller than the crops of 256 pixels")]
)
def test_pictures_that_cannot_be_measured_on_are_refused_before_the_export(
    checkpoint, held_out, tmp_path, side, advice
):
    (tmp_path / "data").mkdir()
    if side:
        Image.new("RGB", (side, 300)).save(tmp_path / "data/a.png")
    done = _ship(checkpoint, held_out, tmp_path / "models", "--data", tmp_path / "data")
    assert done.exit_code == 1
    assert advice in done.output
    assert "building" not in done.output
    assert list((tmp_path / "models").iterdir()) == []


def test_a_net_of_another_task_than_what_is_measured_is_refused_before_the_export(checkpoint, held_out, tmp_path):
    done = _ship(checkpoint, held_out, tmp_path / "models", "--pairs", "AtoB")
    assert done.exit_code == 2
    assert "tiny is for inpaint and takes image, mask" in done.output
    assert "building" not in done.output
    assert list((tmp_path / "models").iterdir()) == []


def test_reports_that_cannot_be_written_are_refused_before_any_work(checkpoint, held_out, tmp_path):
    (tmp_path / "reports").write_text("a file")
    done = _ship(checkpoint, held_out, tmp_path / "models", "--reports", tmp_path / "reports")
    assert done.exit_code == 1
    assert "reports: File exists; name another file or folder" in done.output
    assert "reading" not in done.output
    assert not (tmp_path / "models").exists()


def test_weights_that_cannot_be_measured_with_are_refused_before_the_export(checkpoint, held_out, tmp_path):
    done = _ship(checkpoint, held_out, tmp_path / "models", "--lpips-features", tmp_path / "gone.safetensors")
    assert done.exit_code == 1
    assert "gone.safetensors" in done.output
    assert "building" not in done.output
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", '{"sources": [{"name": "a"}]}', '{"sources": [{"name": "a", "licence": "CC0", "kept": "many"}]}'],
)
def test_foreign_list_of_sources_is_refused_before_any_work(checkpoint, held_out, tmp_path, content):
    (tmp_path / "photos.json").write_text(content)
    done = _ship(checkpoint, held_out, tmp_path / "models", "--sources", tmp_path / "photos.json")
    assert done.exit_code == 1
    assert "not the manifest that gather writes" in done.output
    assert not (tmp_path / "models").exists()
