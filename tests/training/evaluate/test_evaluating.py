import json
import math

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from export.generators.dcgan import DCGAN, DCGANOptions
from export.generators.pconv.unet import PConv, PConvOptions
from export.generators.pgn import PGN, PGNOptions
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from export.generators.pix2pixhd.generator import Pix2PixHD
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from export.pipeline import ExportRequest, export_model
from training.__main__ import app
from training.losses.lpips_distance import Lpips
from training.losses.vgg16 import VGG16Features


@pytest.fixture(scope="module")
def write_pictures(smooth_picture):
    def write(folder, count, height=150, width=150):
        folder.mkdir()
        for index in range(count):
            Image.fromarray(smooth_picture(index, height, width)).save(folder / f"{index}.png")

    return write


@pytest.fixture(scope="module")
def models(tmp_path_factory, save_untrained, write_pictures):
    """Export two untrained models."""
    root = tmp_path_factory.mktemp("models")
    nets = {
        "holes": PConv().build(PConvOptions(levels=2, width=4)),
        "pairs": Pix2Pix().build(Pix2PixOptions(net="unet_128", ngf=2)),
    }
    write_pictures(root / "pictures", 2)
    for name, net in nets.items():
        checkpoint = save_untrained(net, root / f"{name}.pth")
        export_model(ExportRequest((checkpoint,), name, root / "pictures", output=root), lambda _step: None)
    others = {
        "numbers": DCGAN().build(DCGANOptions(nz=4, ngf=2)),
        "centre": PGN().build(PGNOptions(stages=2, width=2)),
        "grey": Pix2Pix().build(Pix2PixOptions(net="unet_128", ngf=2, in_channels=1, out_channels=1)),
        "facades": Pix2PixHD().build(Pix2PixHDOptions(label_nc=13, ngf=2, downsamplings=2, blocks=1)),
        "city": Pix2PixHD().build(Pix2PixHDOptions(ngf=2, downsamplings=2, blocks=1)),
        "filled": Pix2Pix().build(Pix2PixOptions(net="unet_128", ngf=2, out_channels=1)),
    }
    for name, net in others.items():
        save_untrained(net, root / f"{name}.pth")
    return root


def _evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--engine", "onnxrt"])


def test_command_measures_an_exported_model_beside_opencv(models, feature_net, write_pictures, tmp_path):
    write_pictures(tmp_path / "data", 5)
    torch.manual_seed(0)
    state = {key: value for key, value in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    save_file(VGG16Features().features.state_dict(prefix="features."), tmp_path / "vgg16.safetensors")
    done = _evaluate(
        *(models / "holes/1", "--data", tmp_path / "data", "--size", 128, "--coverage", "0.1-0.3", "--holes", "all"),
        *("--lpips-features", tmp_path / "alexnet.safetensors", "--fid-features", feature_net),
        *("--vgg-features", tmp_path / "vgg16.safetensors"),
        *("--json", tmp_path / "out/report.json", "--sheet", tmp_path / "out/sheet.png", "--sheet-rows", 2),
        *("--sheet-side", 64),
    )
    assert done.exit_code == 0, done.output
    assert "engine chosen" in done.stderr  # the log; the table alone is on standard output
    assert "engine chosen" not in done.stdout
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["model"] | {"onnx_sha256": ""} == {
        "name": "holes/1",
        "onnx_sha256": "",
        "graph": "fp16",
        "engine": "onnxrt",
        "precision": "fp16",
    }
    figures = report["figures"]
    assert list(figures) == ["model", "telea", "ns"]
    assert {band: row["pictures"] for band, row in figures["telea"].items()} == {"all": 5, "10-20 %": 3, "20-30 %": 2}
    assert {kind: row["pictures"] for kind, row in report["by_kind"]["model"].items()} == {
        "all": 5,
        "blobs": 1,
        "boxes": 2,
        "strokes": 2,
    }
    assert sum(row["pictures"] for name, row in report["by_thickness"]["ns"].items() if name != "all") == 5
    for painter in figures.values():
        assert set(painter["all"]) == {"pictures", "psnr_db", "ssim", "l1", "lpips", "vgg", "kid", "fid"}
        assert all(math.isfinite(value) for value in painter["all"].values())
    # the pictures are smooth, so OpenCV's methods are far better than an untrained net
    assert figures["telea"]["all"]["psnr_db"] > figures["model"]["all"]["psnr_db"] + 3
    assert report["gains"]["telea"]["lpips_ratio"] > 1
    assert [0.1 <= picture["coverage"] <= 0.3 for picture in report["pictures"]] == [True] * 5
    assert "model against telea: PSNR -" in done.stdout
    with Image.open(tmp_path / "out/sheet.png") as sheet:
        assert sheet.size == (5 * 68 - 4, 16 + 2 * 68)


def test_another_model_and_dists_are_measured_on_the_same_pictures(models, write_pictures, tmp_path):
    vgg, weights = tmp_path / "vgg16.safetensors", tmp_path / "weights.pt"
    save_file(VGG16Features(5).features.state_dict(prefix="features."), vgg)
    torch.save({name: torch.full((1, 1475, 1, 1), 0.01) for name in ("alpha", "beta")}, weights)
    flags = ["--data", models / "pictures", "--size", 64, "--baselines", "nothing", "--json", tmp_path / "r.json"]
    against = ["--against", models / "holes.pth", "--dists-weights", weights]
    done = _evaluate(models / "holes/1", *flags, *against, "--vgg-features", vgg)
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "r.json").read_text())
    other = str(models / "holes.pth")
    assert list(report["figures"]) == ["model", other]
    for picture in report["pictures"]:  # the same net, so nearly the same fills of the same holes
        assert picture["model"]["psnr_db"] == pytest.approx(picture[other]["psnr_db"], abs=0.5)
        assert 0 < picture["model"]["dists"] < 1
    assert report["gains"][other]["dists_ratio"] == pytest.approx(1, abs=0.05)


def test_command_measures_a_translation_on_pairs(models, write_pictures, tmp_path):
    write_pictures(tmp_path / "data", 3, height=128, width=256)
    done = _evaluate(models / "pairs/1", "--data", tmp_path / "data", "--pairs", "BtoA", "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert list(report["figures"]) == ["model"]
    assert report["figures"]["model"]["all"]["pictures"] == 3
    assert 3 < report["figures"]["model"]["all"]["psnr_db"] < 30


def test_command_measures_a_translation_of_class_ids(models, facades, tmp_path):
    flags = ["--pairs", "BtoA", "--labels", "facades", "--json", tmp_path / "r.json", "--sheet", tmp_path / "sheet.png"]
    done = _evaluate(models / "facades.pth", "--data", facades, *flags)
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["protocol"]["labels"] == "facades"
    assert report["figures"]["model"]["all"]["pictures"] == len(list(facades.iterdir()))
    assert math.isfinite(report["figures"]["model"]["all"]["l1"])


@pytest.mark.parametrize(
    ("wanted", "measured"),
    [("telea", ["telea"]), ("both", ["telea", "ns"]), ("ns,telea", ["telea", "ns"]), ("nothing", []), ("", [])],
)
def test_baselines_are_named_by_their_methods_or_by_how_many(wanted, measured, models, tmp_path):
    flags = ["--size", 64, "--limit", 1, "--baselines", wanted, "--json", tmp_path / "r.json"]
    done = _evaluate(models / "holes/1", "--data", models / "pictures", *flags)
    assert done.exit_code == 0, done.output
    assert list(json.loads((tmp_path / "r.json").read_text())["figures"]) == ["model", *measured]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["pairs/1"], 2, "pairs/1 is for translate", id="another task"),
        pytest.param(["pairs.pth"], 2, "pairs.pth is for translate and takes image;", id="checkpoint of another task"),
        pytest.param(
            ["holes.pth", "--pairs", "AtoB"], 2, "holes.pth is for inpaint", id="checkpoint of holes for pairs"
        ),
        pytest.param(["numbers.pth"], 1, "give --vgg-features", id="a net that draws, without features"),
        pytest.param(
            ["centre.pth", "--size", "128"], 2, "rows 32 to 95, columns 32 to 95 of 128×128", id="one fixed hole"
        ),
        pytest.param(["grey.pth", "--pairs", "AtoB"], 2, "of 1 channels from 1;", id="grey"),
        pytest.param(["filled.pth", "--pairs", "AtoB"], 2, "of 1 channels from 3;", id="grey of colours"),
        pytest.param(["facades.pth", "--pairs", "BtoA"], 2, "--labels translation of class ids", id="no ids"),
        pytest.param(["pairs.pth", "--pairs", "BtoA", "--labels", "facades"], 2, "takes image;", id="ids for colours"),
        pytest.param(
            ["city.pth", "--pairs", "BtoA", "--labels", "facades"], 2, "knows 35 classes", id="others' classes"
        ),
        pytest.param(["holes/2"], 1, "no such model", id="no model"),
        pytest.param(["holes/1", "--against", "pairs.pth"], 2, "pairs.pth is for translate", id="another task beside"),
        pytest.param(["holes/1", "--dists-weights", "w.pt"], 2, "give --vgg-features", id="DISTS without VGG16"),
        pytest.param(["holes/1", "--coverage", "0.5"], 2, "write LOW-HIGH", id="coverage"),
        pytest.param(["holes/1", "--coverage", "0.5-0.2"], 2, "the smaller first", id="coverage the wrong way"),
        pytest.param(["holes/1", "--baselines", "telea,best"], 2, "known are telea, ns", id="baseline"),
        pytest.param(["holes/1", "--size", "8"], 2, "Invalid value for '--size'", id="small crops"),
        pytest.param(["holes/1", "--size", "0"], 2, "Invalid value for '--size'", id="no crops"),
        pytest.param(["holes/1", "--size", "64", "--width", "64"], 2, "leave one out", id="crops of whole pictures"),
        pytest.param(["holes/1", "--masks", "m", "--holes", "boxes"], 2, "leave one out", id="kinds of given masks"),
        pytest.param(
            ["pairs/1", "--pairs", "AtoB", "--size", "64", "--holes", "all"],
            2,
            "without holes: leave out --size, --holes",
            id="holes in pairs",
        ),
        pytest.param(["holes/1", "--width", "8"], 2, "Invalid value for '--width'", id="small pictures"),
    ],
)
def test_what_cannot_be_measured_is_reported_in_a_line(models, arguments, code, message):
    model, *flags = arguments
    flags = [str(models / flag) if flag == "pairs.pth" else flag for flag in flags]
    done = _evaluate(models / model, "--data", models / "pictures", *flags)
    assert done.exit_code == code
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("side", "last_row", "code"), [(128, 95, 0), (128, 96, 2), (64, 95, 2)], ids=["inside", "too large", "another size"]
)
def test_a_model_of_one_fixed_hole_is_measured_on_holes_inside_it(
    models, side, last_row, code, write_pictures, tmp_path
):
    write_pictures(tmp_path / "data", 2, height=150, width=140)
    hole = Image.new("L", (128, 128))
    hole.paste(255, (32, 40, 96, last_row + 1))
    (tmp_path / "masks").mkdir()
    hole.save(tmp_path / "masks/1.png")
    report = tmp_path / "r.json"
    given = ["--data", tmp_path / "data", "--size", side, "--masks", tmp_path / "masks", "--json", report]
    done = _evaluate(models / "centre.pth", *given)
    assert done.exit_code == code, done.output
    if code:
        assert "give --size 128 and --masks" in " ".join(done.stderr.replace("│", " ").split())
    else:
        assert json.loads(report.read_text())["figures"]["model"]["all"]["pictures"] == 2


@pytest.mark.parametrize("flag", ["--json", "--sheet"])
def test_a_report_that_could_not_be_written_ends_the_command_before_it_measures(models, flag, tmp_path):
    (tmp_path / "folder").mkdir()
    done = _evaluate(models / "holes/1", "--data", models / "none", flag, tmp_path / "folder")
    assert done.exit_code == 1
    assert f"{tmp_path / 'folder'}: Is a directory" in done.stderr
