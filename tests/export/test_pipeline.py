from __future__ import annotations

import errno
import re
import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from engines.errors import ManifestInvalid
from engines.manifest import Quantisation, read_manifest
from export.checkpoint import sha256_of
from export.errors import CheckpointRefused, ExportError, LayoutMismatch, OptionInvalid, ParityFailed, SamplesMissing
from export.generators.family import Bars
from export.generators.pconv.unet import PConv, PConvOptions
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from export.parity import onnx_backend
from export.pipeline import ExportRequest, add_program, export_model
from export.program import program_backend, write_program
from tests.engines.conftest import QUANTISATION

OPTIONS = PConvOptions(levels=2, width=2)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, make_net):
    path = tmp_path_factory.mktemp("checkpoint") / "net.pth"
    torch.save({"model": make_net(PConv(), OPTIONS).state_dict()}, path)
    return path


@pytest.fixture
def request_(tmp_path, checkpoint, pictures_dir):
    return ExportRequest((checkpoint,), "tiny", pictures_dir, output=tmp_path / "models")


def _ignore(step):
    pass


def _files(folder):
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


@pytest.fixture(scope="module")
def whole_export(tmp_path_factory, checkpoint, pictures_dir):
    """Export a model with all its parts once; returns it and the reported steps, which tests must not change."""
    output, steps = tmp_path_factory.mktemp("exported") / "models", list[str]()
    request = ExportRequest((checkpoint,), "tiny", pictures_dir, output=output)
    request = replace(request, max_batch=4, licence="CC0", training_data="none", program=True)
    return export_model(request, steps.append), steps


@pytest.fixture
def published(whole_export, tmp_path):
    """Copy the exported folder, without the program."""
    copied = shutil.copytree(whole_export[0].directory, tmp_path / "models/tiny/1")
    (copied / "program.pt2").unlink()
    return copied


def test_a_checkpoint_becomes_a_model_with_a_correct_manifest(whole_export, checkpoint):
    exported, steps = whole_export
    manifest = read_manifest(exported.directory)
    assert manifest == exported.manifest
    assert (manifest.key, manifest.task, manifest.generator) == ("tiny/1", "inpaint", "pconv")
    assert (manifest.options, manifest.max_batch, manifest.precision) == ({"levels": 2, "width": 2}, 4, "fp16")
    assert manifest.onnx_sha256 == sha256_of(exported.directory / "model.onnx")
    assert manifest.checkpoint_sha256 == sha256_of(checkpoint)
    assert manifest.size == PConv().interface(OPTIONS).size
    assert {case.backend for case in manifest.parity.cases} == {"onnx-fp32", "onnx-fp16", "program-fp16"}
    assert all(case.finite for case in manifest.parity.cases)
    assert steps[0] == "reading the checkpoint"
    assert steps[-1] == "publishing"
    assert "CC0" in (exported.directory / "card.md").read_text("utf-8")


def test_nothing_but_the_version_is_left_behind(whole_export):
    wanted = ["1", "card.md", "manifest.json", "model.onnx", "program.pt2", "tiny"]
    assert _files(whole_export[0].directory.parents[1]) == wanted


def test_a_program_is_compared_like_the_graphs(whole_export):
    programs = [case.inputs for case in whole_export[0].manifest.parity.cases if case.backend == "program-fp16"]
    assert {"full mask", "batch of 3"} < set(programs)


def test_published_graph_fills_a_hole_of_any_batch(whole_export):
    feed = {"image": np.full((2, 3, 8, 12), 0.5, np.float32), "mask": np.ones((2, 1, 8, 12), np.float32)}
    assert np.isfinite(onnx_backend(whole_export[0].directory / "model.onnx")(feed)).all()


def test_full_precision_can_be_published(request_):
    exported = export_model(replace(request_, precision="fp32"), _ignore)
    weights = onnx.load(exported.directory / "model.onnx").graph.initializer
    assert onnx.TensorProto.FLOAT16 not in {tensor.data_type for tensor in weights}


def test_a_second_export_is_the_next_version(request_):
    small = replace(request_, precision="fp32")
    assert [export_model(small, _ignore).directory.name for _ in range(2)] == ["1", "2"]


def test_a_net_that_exceeds_fp16_is_published_in_fp32_and_a_note_says_so(tmp_path, make_net, pictures_dir):
    options = Pix2PixOptions(net="unet_128", norm="none", ngf=1)
    net = make_net(Pix2Pix(), options)
    net.model.model[0].weight.mul_(1e6)
    net.model.model[3].weight.mul_(1e-6)
    torch.save(net.state_dict(), tmp_path / "loud.pth")
    loud = ExportRequest((tmp_path / "loud.pth",), "loud", pictures_dir, output=tmp_path / "models")
    exported = export_model(loud, _ignore)
    assert read_manifest(exported.directory).precision == "fp32"
    assert any("FP16 ends at 65504, which is too close: published in FP32 instead" in note for note in exported.notes)
    weights = onnx.load(exported.directory / "model.onnx").graph.initializer
    assert onnx.TensorProto.FLOAT16 not in {tensor.data_type for tensor in weights}


def test_an_fp16_graph_that_misses_its_bar_is_replaced_by_fp32_and_a_note_says_so(request_, monkeypatch):
    monkeypatch.setattr(PConv, "bars", lambda _family, _options: Bars(fp16_psnr_db=200))
    exported = export_model(request_, _ignore)
    assert read_manifest(exported.directory).precision == "fp32"
    assert any(re.search(r"onnx-fp16 on .* dB, less than 200 dB.*: published in FP32", note) for note in exported.notes)
    weights = onnx.load(exported.directory / "model.onnx").graph.initializer
    assert onnx.TensorProto.FLOAT16 not in {tensor.data_type for tensor in weights}


def levels_off(manifest, backend):
    return 255 * max(case.max_abs for case in manifest.parity.cases if case.backend == backend)


def test_an_fp16_graph_beyond_the_promised_grey_levels_is_replaced_by_fp32(request_, whole_export, monkeypatch):
    half, full = (levels_off(whole_export[0].manifest, backend) for backend in ("onnx-fp16", "onnx-fp32"))
    assert full < half / 2
    monkeypatch.setattr(PConv, "bars", lambda _family, _options: Bars(fill_levels=half / 2))
    exported = export_model(request_, _ignore)
    assert (exported.manifest.precision, exported.manifest.parity.fill_levels) == ("fp32", half / 2)
    assert any(re.search(r"grey levels off, .*: published in FP32", note) for note in exported.notes)


def test_a_net_whose_fp32_graph_is_beyond_the_promised_grey_levels_excludes_bf16(request_, monkeypatch):
    monkeypatch.setattr(PConv, "bars", lambda _family, _options: Bars(fill_levels=0))
    exported = export_model(request_, _ignore)
    manifest = read_manifest(exported.directory)
    assert (manifest.precision, manifest.parity.fill_levels) == ("fp32", 0.01)
    assert manifest.bf16_levels == pytest.approx(0, abs=0.01)
    assert any(re.search(r"onnx-fp32 on .* grey levels off, .* promises 0.01", note) for note in exported.notes)


def test_an_int8_model_promises_no_grey_levels(request_, monkeypatch):
    def quantiser(source, target, _manifest, _notify):
        shutil.copyfile(source, target)
        return Quantisation.model_validate(QUANTISATION)

    monkeypatch.setattr(PConv, "bars", lambda _family, _options: Bars(fill_levels=1))
    exported = export_model(replace(request_, precision="int8", quantiser=quantiser), _ignore)
    manifest = read_manifest(exported.directory)
    assert (manifest.precision, manifest.parity.fill_levels) == ("int8", None)


def test_the_largest_activation_is_reported(whole_export):
    assert any("largest activation" in note for note in whole_export[0].notes)


@pytest.mark.parametrize("name", ["Tiny", "../up", "", "a" * 65])
def test_names_that_are_no_model_names_are_refused_before_any_work(request_, name):
    with pytest.raises(OptionInvalid, match="lower-case letters"):
        export_model(replace(request_, name=name, checkpoints=()), _ignore)


@pytest.mark.parametrize("output", ["a_file", "a_file/models", "/proc/models"])
def test_an_output_that_cannot_be_written_is_refused_before_the_checkpoint_is_read(tmp_path, request_, output):
    (tmp_path / "a_file").touch()
    steps: list[str] = []
    with pytest.raises(ExportError, match=r"cannot be written: [^;]*; name another folder with --output"):
        export_model(replace(request_, output=tmp_path / output), steps.append)
    assert steps == []


def test_an_output_that_onnx_cannot_spell_is_refused_before_the_checkpoint_is_read(tmp_path, request_):
    steps: list[str] = []
    with pytest.raises(ExportError, match=r"codec.*another folder"):
        export_model(replace(request_, output=tmp_path / "caf\udce9"), steps.append)
    assert steps == []


def test_a_disk_that_is_full_is_an_error_of_the_export_and_leaves_nothing(request_, monkeypatch):
    def write_to_a_full_disk(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("export.pipeline.write_graph", write_to_a_full_disk)
    with pytest.raises(ExportError, match="No space left on device"):
        export_model(request_, _ignore)
    assert _files(request_.output) == []


def test_a_checkpoint_of_another_shape_is_refused_naming_the_keys(request_):
    with pytest.raises(LayoutMismatch, match=r"missing: enc_3\.conv\.input_conv\.weight"):
        export_model(replace(request_, options={"levels": "3"}), _ignore)
    assert _files(request_.output) == []


def test_a_failure_while_comparing_leaves_nothing(request_, tmp_path):
    with pytest.raises(ExportError):
        export_model(replace(request_, images=tmp_path / "none"), _ignore)
    assert _files(request_.output) == []


def test_constants_that_were_added_are_reported(tmp_path, request_, make_net):
    state = {k: v for k, v in make_net(PConv(), OPTIONS).state_dict().items() if "mask_conv" not in k}
    torch.save(state, tmp_path / "bare.pth")
    exported = export_model(replace(request_, checkpoints=(tmp_path / "bare.pth",)), _ignore)
    assert exported.notes[-1] == "4 constant keys were not in the file and were added as ones"


def test_keys_that_were_dropped_are_reported(tmp_path, request_, make_net):
    options = Pix2PixOptions(net="resnet_6blocks", norm="instance", ngf=2)
    state = {**make_net(Pix2Pix(), options).state_dict(), "model.2.running_mean": torch.zeros(2)}
    torch.save(state, tmp_path / "old.pth")
    exported = export_model(replace(request_, checkpoints=(tmp_path / "old.pth",), precision="fp32"), _ignore)
    assert exported.notes[1:] == ("dropped model.2.running_mean: unused statistics of an old instance norm",)
    assert exported.notes[0].startswith("padding=reflect was assumed")


def test_several_files_are_read_as_one_checkpoint(tmp_path, request_, checkpoint):
    torch.save({"d": torch.zeros(1)}, tmp_path / "discriminator.pth")
    exported = export_model(replace(request_, checkpoints=(tmp_path / "discriminator.pth", checkpoint)), _ignore)
    assert exported.manifest.checkpoint_sha256 not in (sha256_of(checkpoint), sha256_of(tmp_path / "discriminator.pth"))
    assert f"left out: {tmp_path / 'discriminator.pth'}" in exported.notes


def test_a_program_is_added_to_a_published_model_and_nothing_else_changes(published, checkpoint, pictures_dir):
    before = {path.name: path.read_bytes() for path in published.iterdir()}
    cases = add_program(published, [checkpoint], pictures_dir, _ignore)
    assert {case.backend for case in cases} == {"program-fp16"}
    assert _files(published) == ["card.md", "manifest.json", "model.onnx", "program.pt2"]
    assert {name: (published / name).read_bytes() for name in before} == before
    feed = {"image": np.full((2, 3, 8, 12), 0.5, np.float32), "mask": np.ones((2, 1, 8, 12), np.float32)}
    found, wanted = program_backend(published / "program.pt2")(feed), onnx_backend(published / "model.onnx")(feed)
    np.testing.assert_allclose(found, wanted, atol=5e-3)


def test_a_program_of_other_weights_is_not_added(published, tmp_path, make_net, pictures_dir):
    torch.save(make_net(PConv(), OPTIONS, seed=2).state_dict(), tmp_path / "other.pth")
    with pytest.raises(CheckpointRefused, match="tiny/1 was not exported from these files"):
        add_program(published, [tmp_path / "other.pth"], pictures_dir, _ignore)
    assert _files(published) == ["card.md", "manifest.json", "model.onnx"]


def test_a_program_that_is_not_what_torch_computes_is_not_added(published, checkpoint, pictures_dir, monkeypatch):
    def write_another(net, *rest):
        for tensor in net.state_dict().values():
            tensor.mul_(2)
        write_program(net, *rest)

    monkeypatch.setattr("export.pipeline.write_program", write_another)
    with pytest.raises(ParityFailed, match=r"no program was written: program-fp16 on ordinary 1: .* dB"):
        add_program(published, [checkpoint], pictures_dir, _ignore)
    assert _files(published) == ["card.md", "manifest.json", "model.onnx"]


def test_a_program_that_cannot_be_compared_is_refused_before_any_work(published, checkpoint, tmp_path):
    steps: list[str] = []
    with pytest.raises(SamplesMissing, match="nowhere: no pictures to compare the graphs on"):
        add_program(published, [checkpoint], tmp_path / "nowhere", steps.append)
    assert steps == []
    assert _files(published) == ["card.md", "manifest.json", "model.onnx"]


def test_a_folder_without_a_model_gets_no_program(tmp_path, checkpoint, pictures_dir):
    with pytest.raises(ManifestInvalid, match="cannot be read"):
        add_program(tmp_path, [checkpoint], pictures_dir, _ignore)


def test_a_file_with_a_model_of_its_own_is_refused_by_name(request_, checkpoint, make_net, tmp_path):
    options = Pix2PixOptions(net="unet_128", norm="none", ngf=1)
    torch.save(make_net(Pix2Pix(), options).state_dict(), tmp_path / "zebra.pth")
    request = replace(request_, checkpoints=(checkpoint, tmp_path / "zebra.pth"))
    with pytest.raises(
        LayoutMismatch, match=r"zebra\.pth is not part of the pconv in .*net\.pth, but a separate pix2pix"
    ):
        export_model(request, _ignore)
    assert not _files(request.output)
