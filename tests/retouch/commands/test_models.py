"""`retouch models` lists the models, including broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from retouch.commands.models import models_app
from tests.retouch.small_models import write_model
from tests.serving.backing.s3_server import KEY, SECRET, serving_bucket
from tests.serving.ports import free_port


def run(*arguments: str) -> Any:
    return CliRunner().invoke(models_app, list(arguments))


def case(backend: str, inputs: str, psnr_db: float | None) -> dict[str, Any]:
    return {"backend": backend, "inputs": inputs, "psnr_db": psnr_db, "max_abs": 0.1, "finite": True}


@pytest.fixture
def root(tmp_path) -> Path:
    cases = [case("onnx-fp32", "empty", None), case("onnx-fp16", "full", 47.25), case("onnx-fp16", "empty", 60.0)]
    write_model(tmp_path, "photos", "inpaint", precision="fp16", parity={"bar_db": 45, "cases": cases})
    write_model(tmp_path, "photos", "inpaint", version=2, max_batch=0)
    write_model(
        tmp_path,
        "facades",
        "translate",
        size={"kind": "fixed", "height": 256, "width": 128},
        parity={"bar_db": 45, "cases": cases[:1]},
    )
    write_model(tmp_path, "tiny", "translate", generator="mine[v2]")
    return tmp_path


def test_every_version_is_listed_by_name_and_newest_first(root):
    rows = json.loads(run(f"--models-dir={root}", "--json").stdout)
    assert [(row["name"], row["version"]) for row in rows] == [
        ("facades", 1),
        ("photos", 2),
        ("photos", 1),
        ("tiny", 1),
    ]


def test_json_has_the_facts_and_the_worst_parity_case(root):
    row = json.loads(run(f"--models-dir={root}", "--json").stdout)[2]
    assert (row["task"], row["precision"], row["max_batch"]) == ("inpaint", "fp16", 8)
    assert row["size"] == {"kind": "multiple", "multiple_of": 8, "sides": [16, 32], "fit": "pad", "padding": "reflect"}
    assert row["parity"] == {"bar_db": 45.0, "cases": 3, "worst_db": 47.25, "worst_case": "onnx-fp16, full"}


def test_a_half_graph_that_was_not_published_is_not_its_models_worst_case(tmp_path):
    cases = [case("onnx-fp32", "full", 120.5), case("onnx-fp16", "full", 20.0)]
    write_model(tmp_path, "photos", "inpaint", precision="fp32", parity={"bar_db": 45, "cases": cases})
    (row,) = json.loads(run(f"--models-dir={tmp_path}", "--json").stdout)
    assert (row["parity"]["worst_db"], row["parity"]["worst_case"]) == (120.5, "onnx-fp32, full")


def test_broken_version_is_listed_with_its_error(root):
    row = json.loads(run(f"--models-dir={root}", "--json").stdout)[1]
    assert set(row) == {"name", "version", "error"}
    assert "max_batch" in row["error"]


def test_table_says_sizes_and_parity_in_words(root, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    output = run(f"--models-dir={root}").output
    for words in (
        "128×256 (resize)",
        "sides 16, 32 (pad)",
        "47.2 dB (onnx-fp16, full); bar 45 dB",
        "broken",
        "mine[v2]",
    ):
        assert words in output
    assert "identical" in output
    assert "not measured" in output


def test_names_are_whole_where_there_is_no_terminal_or_a_narrow_one(tmp_path, monkeypatch):
    name = "a-model-of-a-name-as-long-as-names-can-be-" + "x" * 22
    write_model(tmp_path, name, "inpaint")
    for columns in ("40", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        output = run(f"--models-dir={tmp_path}").output
        assert f"{name}/1" in output
        assert "…" not in output


def test_empty_repository_says_what_to_do(tmp_path):
    result = run(f"--models-dir={tmp_path}")
    assert result.exit_code == 0
    assert "retouch export makes one" in result.output


@pytest.mark.parametrize(
    ("version", "there"), [("photos/99", "photos/1, photos/2"), ("skies/1", "facades/1, photos/1, photos/2, tiny/1")]
)
def test_a_version_that_never_was_is_not_to_be_exported_again(root, version, there):
    done = run("push", version, "--models-dir", str(root), "--to", "s3://nowhere/models")
    assert done.exit_code == 1
    assert str(done.exception) == f"no {version} in {root}; there are {there}"


def test_pushing_from_a_folder_without_models_says_so(tmp_path):
    done = run("push", "photos/1", "--models-dir", str(tmp_path / "none"), "--to", "s3://nowhere/models")
    assert str(done.exception) == f"no photos/1 in {tmp_path / 'none'}: the folder is not there"


@pytest.mark.parametrize("command", ["push", "withdraw"])
def test_a_bucket_that_cannot_be_reached_is_one_line(root, monkeypatch, command):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("RETOUCH_MODELS_DIR", str(root))
    monkeypatch.setenv("RETOUCH_MODELS_URL", "s3://nowhere/models")
    monkeypatch.setenv("RETOUCH_S3_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    done = run(command, "photos/1")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "check the address of the bucket" in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_version_is_pushed_and_withdrawn_with_json(root, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("RETOUCH_MODELS_DIR", str(root))
    monkeypatch.setenv("RETOUCH_MODELS_URL", "s3://results/models")
    with serving_bucket(tmp_path / "bucket") as bucket:
        monkeypatch.setenv("RETOUCH_S3_ENDPOINT", bucket.endpoint)
        pushed = json.loads(run("push", "photos/1", "--json").stdout)
        size = (root / "photos/1/manifest.json").stat().st_size
        assert pushed == {"version": "photos/1", "files": {"manifest.json": size}, "bytes": size}
        withdrawn = json.loads(run("withdraw", "photos/1", "--json").stdout)
        assert withdrawn["objects"] >= len(pushed["files"])
        gone = run("withdraw", "photos/1", "--json")
        assert (gone.exit_code, json.loads(gone.stdout)) == (1, {"version": "photos/1", "objects": 0})
