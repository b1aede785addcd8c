"""`retouch install-gpu` plans from the answers of nvidia-smi and the index; without a driver it does nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engines.trt.library import MODULES
from retouch.command_line import app
from retouch.gpu_setup.host import INDEX_VARIABLE
from service.core.settings import INSTALL_VARIABLES, load_settings


@pytest.fixture
def put_smi(tmp_path, monkeypatch):
    """Put an nvidia-smi on PATH that prints this line, on a host without TensorRT; without a line there is no GPU."""
    for module in MODULES:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))

    def put(line: str = "") -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        if line:
            (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{line}'\n")
            (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if not line:  # hides the GPUs of this host
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    return put


def run(*arguments: str, index: Path | str = "") -> Result:
    return CliRunner().invoke(app, ["install-gpu", *arguments, "--nvidia-index", str(index)])


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_without_a_driver_there_is_nothing_to_install(put_smi, arguments):
    put_smi()
    done = run(*arguments)
    assert (done.exit_code, done.output) == (0, "no NVIDIA driver here: the CPU computes\n")


def test_a_gpu_that_cannot_be_used_is_a_warning_and_the_cpu_computes(put_smi):
    put_smi("NVIDIA L4, 470.82.01, 8.9")
    done = run()
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: the driver 470.82.1 is too old")
    assert "update the NVIDIA driver to 580" in done.stderr


def test_a_dry_run_names_the_packages_in_their_order_and_what_is_passed_over(put_smi):
    put_smi("NVIDIA H200, 580.65.06, 9.0")
    lines = run("--dry-run").output.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "NVIDIA H200 (9.0), driver 580.65.6",
        "for CUDA 13",
        "not TensorRT",
        "not TensorRT-RTX",
        "first ONNX Runtime for CUDA",
    ]


def test_what_would_be_installed_is_printed_as_json_and_messages_go_to_standard_error(put_smi):
    put_smi("NVIDIA H200, 580.65.06, 9.0")
    done = run("--dry-run", "--json")
    facts = json.loads(done.stdout)
    assert (facts["device"], facts["gpus"], facts["installed"]) == ("gpu", "NVIDIA H200 (9.0), driver 580.65.6", False)
    assert facts["plan"]["cuda"] == 13
    assert set(facts["plan"]["passed_over"]) == {"TensorRT", "TensorRT-RTX"}
    (candidate,) = facts["plan"]["candidates"]
    assert candidate["engine"] == "onnxrt-cuda"
    assert candidate["requirements"]
    assert done.stderr.startswith("NVIDIA H200 (9.0), driver 580.65.6\nfor CUDA 13: ")


@pytest.mark.parametrize(
    ("line", "why"), [("", "no NVIDIA driver here"), ("NVIDIA L4, 470.82.01, 8.9", "the driver 470.82.1 is too old")]
)
def test_why_the_cpu_computes_is_printed_as_json(put_smi, line, why):
    put_smi(line)
    facts = json.loads(run("--json").stdout)
    assert facts["device"] == "cpu"
    assert facts["why"].startswith(why)


def test_that_the_settings_leave_the_gpu_alone_and_an_undoing_are_printed_as_json(put_smi, monkeypatch):
    put_smi()
    undone = {"device": "cpu", "why": "--undo-unfinished", "restored": False}
    assert json.loads(run("--undo-unfinished", "--json").stdout) == undone
    monkeypatch.setenv("RETOUCH_DEVICE", "cpu")
    facts = json.loads(run("--dry-run", "--json").stdout)
    assert facts["device"] == "cpu"
    assert facts["why"].startswith("the setting device is cpu")


def test_a_folder_with_the_library_is_taken_as_nvidias_index(put_smi, tmp_path):
    put_smi("NVIDIA H200, 580.65.06, 9.0")
    (tmp_path / "tensorrt_cu13_libs-11.4.0.106-py3-none-manylinux_2_28_x86_64.whl").touch()
    lines = run("--dry-run", index=tmp_path).output.splitlines()
    assert lines[2:4] == [
        "not TensorRT-RTX: it does not support NVIDIA H200 (9.0)",
        "first TensorRT: tensorrt-cu13-libs==11.4.0.106, tensorrt-cu13-bindings==11.4.0.106",
    ]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("RETOUCH_DEVICE", "cpu", "the setting device is cpu"),
        ("RETOUCH_ENGINE", "openvino", "the engine openvino needs"),
    ],
)
def test_where_the_settings_leave_the_gpu_alone_it_is_not_asked(put_smi, monkeypatch, name, value, why):
    put_smi("NVIDIA H200, 580.65.06, 9.0")
    monkeypatch.setenv(name, value)
    done = run("--dry-run")
    assert done.exit_code == 0
    assert done.output.startswith(why)
    assert done.output.endswith("nothing is installed for one\n")
    assert "H200" not in done.output


def test_a_server_accepts_the_variable_that_names_the_index():
    assert (INDEX_VARIABLE,) == INSTALL_VARIABLES
    assert load_settings(environ={INDEX_VARIABLE: "/wheels"}) == load_settings(environ={})


def test_undoing_where_nothing_was_begun_changes_nothing(put_smi):
    put_smi()
    done = run("--undo-unfinished")
    assert (done.exit_code, done.output) == (0, "")
