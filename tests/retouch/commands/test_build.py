"""`retouch build` fills the engine cache for this host, or for GPUs of other hosts."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper
from typer.testing import CliRunner

from engines.errors import DeviceLost, EngineUnavailable, ModelNotFound
from engines.manifest import Manifest, read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.trt.library import load_tensorrt
from retouch.commands import engine_builds
from retouch.commands.build import CacheUnwritable, build
from retouch.commands.engine_builds import BuildOutcome, build_model
from service.core.settings import Settings
from tests.retouch.small_models import write_model


def negative() -> bytes:
    pixels = ["batch", 3, "height", "width"]
    image, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, pixels) for name in ("image", "output"))
    one = onnx.numpy_helper.from_array(np.ones((), np.float32), "one")
    graph = helper.make_graph([helper.make_node("Sub", ["one", "image"], ["output"])], "g", [image], [output], [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture
def models(tmp_path) -> Path:
    graph = negative()
    for name in ("facades", "maps"):
        directory = write_model(tmp_path / "models", name, "translate", onnx_sha256=hashlib.sha256(graph).hexdigest())
        (directory / "model.onnx").write_bytes(graph)
    return tmp_path / "models"


def run(models: Path, *arguments: str, **environ: str) -> Any:
    app = typer.Typer()
    app.command()(build)
    cache = models.parent / "cache"
    return CliRunner().invoke(app, [f"--models-dir={models}", f"--engine-cache-dir={cache}", *arguments], env=environ)


def test_every_model_is_built_for_this_host_and_its_engine_named(models):
    result = run(models, "--engine=openvino", "--max-batch-size=2")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["facades/1 openvino", "maps/1 openvino"]
    assert list((models.parent / "cache/openvino").iterdir())


def test_only_the_models_named_are_built(models):
    result = run(models, "maps", "--engine=onnxrt")
    assert result.stdout.splitlines() == ["maps/1 onnxrt: fp32 on cpu"]


def test_runtime_of_the_environment_is_built_for_unless_a_flag_names_one(models):
    result = run(models, "maps", RETOUCH_ENGINE="onnxrt")
    assert result.stdout.splitlines() == ["maps/1 onnxrt: fp32 on cpu"]
    result = run(models, "maps", "--engine=openvino", RETOUCH_ENGINE="onnxrt")
    assert result.stdout.startswith("maps/1 openvino: ")


def test_the_outcomes_are_printed_as_json(models):
    result = run(models, "--engine=onnxrt", "--json")
    expected = {"what": "onnxrt", "outcome": "fp32 on cpu", "failed": False}
    assert json.loads(result.stdout) == [{"model": f"{name}/1", **expected} for name in ("facades", "maps")]
    (models / "maps/1/model.onnx").write_bytes(b"broken")
    failing = run(models, "--engine=onnxrt", "--json")
    assert failing.exit_code == 1
    assert [one["failed"] for one in json.loads(failing.stdout)] == [False, True]


def test_a_lost_gpu_leaves_json_of_what_was_built_before(models, monkeypatch):
    def lose(directory: Path, manifest: Manifest, *_: object) -> list[BuildOutcome]:
        if manifest.name == "maps":
            raise DeviceLost("the GPU context is lost")
        return [BuildOutcome("trt", "fp16 on cuda")]

    monkeypatch.setattr(engine_builds, "build_model", lose)
    result = run(models, "--engine=onnxrt", "--json")
    assert isinstance(result.exception, DeviceLost)
    assert [one["model"] for one in json.loads(result.stdout)] == ["facades/1"]


@pytest.mark.usefixtures("_end_signals_as_a_shell_leaves_them")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_build_that_is_ended_leaves_json_of_what_was_built_before(models, monkeypatch, number, status):
    def end(directory: Path, manifest: Manifest, *_: object) -> list[BuildOutcome]:
        if manifest.key == "maps/1":
            os.kill(os.getpid(), number)
        return [BuildOutcome("trt", "fp16 on a GPU")]

    monkeypatch.setattr(engine_builds, "build_model", end)
    result = run(models, "--json", "--engine", "trt")
    assert result.exit_code == status
    assert [built["model"] for built in json.loads(result.stdout)] == ["facades/1"]


_IN_A_LIBRARY = """
import ctypes, sys
from contextlib import suppress
from retouch.command_line import app
from retouch.commands import build, engine_builds

mutex = ctypes.create_string_buffer(128)

def build_model(directory, manifest, *_):
    if manifest.key == "maps/1":
        with suppress(SystemExit):  # in case the signal comes too early
            print("begun", file=sys.stderr, flush=True)
            for _ in range(2):  # the second waits for ever, and not for Python
                ctypes.CDLL(None).pthread_mutex_lock(mutex)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return [engine_builds.BuildOutcome("trt", "fp16 on a GPU")]

build._END_S, engine_builds.build_model = 0.1, build_model
app()
"""


def test_a_build_that_is_ended_in_a_library_does_not_wait_for_it(models):
    call = [sys.executable, "-c", _IN_A_LIBRARY, "build", "--json", "--engine=trt", f"--models-dir={models}"]
    call += [f"--engine-cache-dir={models.parent / 'cache'}"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "begun\n"
        process.terminate()
        assert [built["model"] for built in json.loads(process.stdout.read())] == ["facades/1"]
    assert process.returncode == 143


def test_what_is_logged_meanwhile_is_not_among_the_json(models, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of the runtime")

    monkeypatch.setattr(OnnxRuntimeEngine, "__init__", fail)
    result = run(models, "maps", "--engine=onnxrt", "--json")
    (outcome,) = json.loads(result.stdout)
    assert outcome["failed"]
    assert "a bug of the runtime" in outcome["outcome"]
    assert "engine failed to open" in result.stderr


def test_unknown_model_is_an_error_that_names_those_there(models):
    result = run(models, "surely_not")
    assert result.exit_code != 0
    assert "no surely_not in" in str(result.exception)
    assert "there are facades, maps" in str(result.exception)


@pytest.mark.parametrize("repository", ["empty", "missing"])
def test_a_repository_without_models_is_an_error_and_no_success(tmp_path, repository):
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / repository)
    assert result.exit_code == 1
    assert isinstance(result.exception, ModelNotFound)
    assert f"no models in {tmp_path / repository}; " in str(result.exception)


@pytest.mark.parametrize("builds", [["--engine=openvino"], ["--engine=auto"], ["--compute-capability=8.9"]])
def test_a_cache_that_cannot_be_written_is_no_success(models, tmp_path, builds):
    (tmp_path / "file").write_bytes(b"")
    result = run(models, *builds, "--engine-cache-dir", str(tmp_path / "file"))
    assert isinstance(result.exception, CacheUnwritable)
    assert "file cannot be written" in str(result.exception)
    assert result.output == ""


def test_an_engine_that_keeps_nothing_needs_no_cache(models, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    result = run(models, "maps", "--engine=onnxrt", "--engine-cache-dir", str(tmp_path / "file"))
    assert (result.exit_code, result.stdout) == (0, "maps/1 onnxrt: fp32 on cpu\n")


def test_engine_that_cannot_be_had_fails_with_its_reason(models):
    (models / "maps/1/model.onnx").unlink()
    result = run(models, "--engine=onnxrt")
    assert result.exit_code == 1
    assert "facades/1 onnxrt: fp32 on cpu" in result.stdout
    assert "maps/1 onnxrt: " in result.stdout
    assert "cannot be read" in result.stdout


def test_plans_are_built_for_gpus_that_are_not_here(models):
    try:
        name = load_tensorrt().name
    except EngineUnavailable as error:
        pytest.skip(str(error))
    arguments = ("facades", "--compute-capability=8.9", "--compute-capability=12.0", "--max-batch-size=2")
    assert run(models, *arguments).stdout.splitlines() == [
        f"facades/1 for capability 8.9: built with {name}",
        f"facades/1 for capability 12.0: built with {name}",
    ]
    assert len(list((models.parent / "cache/plans").iterdir())) == 2
    assert "is in the cache already" in run(models, *arguments).stdout


def test_nonsense_for_a_capability_fails_with_an_example(models):
    result = run(models, "facades", "--compute-capability=Ada")
    assert result.exit_code == 1
    assert "write it like 8.9" in result.stdout


def test_a_lost_gpu_ends_the_build_before_the_next_model_is_blamed(models):
    def lose(*_: object, **__: object) -> Any:
        raise DeviceLost("the GPU context is lost")

    directory = models / "maps" / "1"
    with pytest.raises(DeviceLost):
        build_model(directory, read_manifest(directory), Settings(), [], lose)
