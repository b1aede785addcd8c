"""`retouch doctor` succeeds only if this host can serve the default models, and names what is missing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from engines.base import Feed, Outputs
from engines.engine_choice import ChosenEngine
from engines.fake import FakeEngine, NotANumber
from retouch.commands.doctor import doctor, show
from retouch.doctor.diagnosis import Check, Diagnosis, HostSources, diagnose
from retouch.doctor.gpu_checks import GpuSources
from service.core.settings import Settings
from service.devices import planes_kernel
from service.imaging.files import png_filters, scanlines
from service.imaging.pasting import kernel as pasting
from service.imaging.texture import patch_match
from tests.retouch.small_models import write_model


@pytest.fixture
def models(tmp_path) -> Path:
    write_model(tmp_path / "models", "photos", "inpaint")
    write_model(tmp_path / "models", "facades", "translate")
    return tmp_path / "models"


@pytest.fixture
def settings(tmp_path, models) -> Settings:
    return Settings(
        models_dir=models, engine="fake", results_dir=tmp_path / "results", engine_cache_dir=tmp_path / "cache"
    )


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, list(arguments))


def flags(settings: Settings) -> list[str]:
    return [
        f"--models-dir={settings.models_dir}",
        f"--engine={settings.engine}",
        f"--results-dir={settings.results_dir}",
        f"--engine-cache-dir={settings.engine_cache_dir}",
    ]


def check(found: Diagnosis, name: str) -> Check:
    return next(check for check in found.checks if check.name == name)


def test_exit_code_is_0_and_the_engines_are_named_where_the_main_job_runs(settings):
    result = run(*flags(settings))
    assert result.exit_code == 0, result.output
    assert "this host can serve the default models" in result.output
    assert "fake fp32 on cpu" in result.output


def test_json_holds_every_check_and_model(settings):
    result = run(*flags(settings), "--json")
    found = json.loads(result.stdout)
    assert found["ok"] is True
    assert [model["model"] for model in found["models"]] == ["facades/1", "photos/1"]
    assert {"Python", "CPU", "OpenVINO", "ONNX Runtime", "GPU", "engine cache", "results"} <= {
        check["name"] for check in found["checks"]
    }


def test_compiled_code_is_reported_and_may_be_missing(settings, monkeypatch):
    for module in (patch_match, pasting, planes_kernel, png_filters, scanlines):
        monkeypatch.setattr(module, "installed_kernel", object)
    assert check(diagnose(settings, HostSources()), "compiled code").level == "ok"
    monkeypatch.setattr(pasting, "installed_kernel", lambda: None)
    found = diagnose(settings, HostSources())
    assert found.ok
    assert check(found, "compiled code").level == "warning"
    assert "pasted more slowly; " in check(found, "compiled code").detail
    assert "g++" in check(found, "compiled code").detail
    assert "texture" not in check(found, "compiled code").detail


def test_missing_default_model_fails_with_its_name(tmp_path, settings):
    result = run(*flags(settings.model_copy(update={"models_dir": tmp_path / "nowhere"})))
    assert result.exit_code == 1
    assert "this host cannot serve the default models" in result.output
    assert "no photos in" in result.output.replace("\n", " ")


def test_broken_default_model_fails_and_another_only_warns(tmp_path, settings, models):
    write_model(tmp_path / "broken", "photos", "inpaint", max_batch=0)
    (models / "photos").rename(tmp_path / "good")
    (tmp_path / "broken" / "photos").rename(models / "photos")
    write_model(models, "extra", "inpaint", max_batch=0)
    found = diagnose(settings, HostSources())
    assert not found.ok
    levels = {check.model: check.level for check in found.models}
    assert levels == {"extra/1": "warning", "facades/1": "ok", "photos/1": "failed"}
    assert "max_batch" in next(check.error for check in found.models if check.model == "photos/1")


def test_broken_version_beside_an_older_one_that_serves_only_warns(settings, models):
    write_model(models, "photos", "inpaint", version=3, max_batch=0)
    found = diagnose(settings, HostSources())
    assert found.ok
    assert [(check.model, check.level) for check in found.models] == [
        ("facades/1", "ok"),
        ("photos/3", "warning"),
        ("photos/1", "ok"),
    ]


def test_version_that_the_settings_name_is_the_one_that_must_work(settings, models):
    write_model(models, "photos", "inpaint", version=3, max_batch=0)
    pinned = diagnose(settings.model_copy(update={"inpaint_model": "photos/1"}), HostSources())
    assert pinned.ok
    broken = diagnose(settings.model_copy(update={"inpaint_model": "photos/3"}), HostSources())
    assert not broken.ok
    assert [(check.model, check.level) for check in broken.models[1:]] == [("photos/3", "failed"), ("photos/1", "ok")]
    missing = diagnose(settings.model_copy(update={"inpaint_model": "photos/2"}), HostSources())
    assert not missing.ok
    assert check(missing, "inpaint model").detail == f"no photos/2 in {models}; export one"


def test_a_missing_models_folder_is_distinguished_from_one_without_the_model(settings, models):
    elsewhere = models / "misspelt"
    found = diagnose(settings.model_copy(update={"models_dir": elsewhere}), HostSources())
    said = f"no photos in {elsewhere}; it is not a folder: name another with --models-dir"
    assert (found.ok, check(found, "inpaint model").detail) == (False, said)


def test_older_version_that_the_settings_name_is_tried_beside_the_newest(settings, models):
    write_model(models, "photos", "inpaint", version=2)
    found = diagnose(settings.model_copy(update={"inpaint_model": "photos/1"}), HostSources())
    assert [check.model for check in found.models] == ["facades/1", "photos/2", "photos/1"]


def test_text_in_brackets_is_shown_unchanged(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    remedy = Check(name="TensorRT [x]", level="warning", detail="pip install -e '.[gpu]'")
    show(Diagnosis(ok=True, checks=(remedy,), models=()))
    output = capsys.readouterr().out
    assert "TensorRT [x]" in output
    assert "pip install -e '.[gpu]'" in output


def test_model_that_computes_nonsense_fails(settings):
    def choose_engine(_directory: Path, manifest: Any, _options: Any) -> ChosenEngine:
        return ChosenEngine(FakeEngine(manifest, fault=lambda _: NotANumber()), {"better": "its library is missing"})

    found = diagnose(settings, HostSources(choose=choose_engine))
    assert not found.ok
    assert {check.error for check in found.models} == {"the output has NaN or inf"}
    assert found.models[0].passed_over == {"better": "its library is missing"}


class FreeingEngine(FakeEngine):
    """An engine whose output lies in its own memory, as on a GPU, and is gone after `close`."""

    def infer(self, feed: Feed) -> Outputs:
        self._output = super().infer(feed)
        return self._output

    def close(self) -> None:
        self._output["output"].fill(np.nan)
        super().close()


def test_output_is_looked_at_before_the_engine_frees_it(settings):
    def choose_engine(_directory: Path, manifest: Any, _options: Any) -> ChosenEngine:
        return ChosenEngine(FreeingEngine(manifest), {})

    found = diagnose(settings, HostSources(choose=choose_engine))
    assert {check.error for check in found.models} == {""}
    assert found.ok


def test_why_not_the_better_engines_is_shown_once_for_each_reason(settings, capsys):
    def choose_engine(_directory: Path, manifest: Any, _options: Any) -> ChosenEngine:
        reasons = {"trt": "no NVIDIA GPU here", "inductor": "no NVIDIA GPU here", "openvino": "pip install 'x[gpu]'"}
        return ChosenEngine(FakeEngine(manifest), reasons)

    show(diagnose(settings, HostSources(choose=choose_engine)))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("photos/1: ")] == [
        "photos/1: not trt, inductor: no NVIDIA GPU here",
        "photos/1: not openvino: pip install 'x[gpu]'",
    ]


@pytest.mark.parametrize(("save", "level"), [(True, "failed"), (False, "ok")])
def test_results_that_cannot_be_written_fail_unless_nothing_is_saved(tmp_path, settings, save, level):
    (tmp_path / "file").write_text("no directory")
    moved = settings.model_copy(update={"results_dir": tmp_path / "file", "save": save})
    found = diagnose(moved, HostSources())
    assert check(found, "results").level == ("failed" if save else "warning")
    assert found.ok is (level == "ok")


def test_cache_that_cannot_be_written_is_a_warning(tmp_path, settings):
    (tmp_path / "file").write_text("no directory")
    found = diagnose(settings.model_copy(update={"engine_cache_dir": tmp_path / "file"}), HostSources())
    assert check(found, "engine cache").level == "warning"
    assert found.ok


def test_folders_are_looked_at_and_not_made(tmp_path, settings):
    found = diagnose(settings, HostSources())
    assert check(found, "results").detail.endswith("(will be made)")
    assert not settings.results_dir.exists()
    settings.results_dir.mkdir()
    assert check(diagnose(settings, HostSources()), "results").detail.endswith("(writable)")


def test_a_gpu_that_the_settings_leave_alone_is_not_looked_for(settings):
    def refuse() -> Any:
        raise AssertionError

    host = HostSources(gpu=GpuSources(is_here=refuse, ask_host=refuse))
    gpu = check(diagnose(settings.model_copy(update={"device": "cpu"}), host), "GPU")
    assert (gpu.level, gpu.detail) == ("ok", "not looked for: the setting device is cpu")


def test_old_python_fails(settings):
    found = diagnose(settings, HostSources(python=(3, 9, 18)))
    assert not found.ok
    assert check(found, "Python").detail == "3.9.18; 3.10 or newer is needed"


def test_processor_is_named_with_the_flags_that_matter(tmp_path, settings):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Big Iron\nflags\t\t: fpu avx2 avx512_bf16\n")
    detail = check(diagnose(settings, HostSources(cpuinfo=cpuinfo, cores=2)), "CPU").detail
    assert detail == "Big Iron, 2 cores, avx2, avx512_bf16"
    cpuinfo.write_text("Features\t: asimd\n")
    assert "none of avx2" in check(diagnose(settings, HostSources(cpuinfo=cpuinfo)), "CPU").detail
    assert "4 cores" in check(diagnose(settings, HostSources(cpuinfo=tmp_path / "none", cores=4)), "CPU").detail


def test_missing_library_is_a_warning_with_the_remedy(settings, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    openvino = check(diagnose(settings, HostSources()), "OpenVINO")
    assert (openvino.level, openvino.detail) == ("warning", "not installed; pip install openvino")


def test_unloadable_engine_is_shown_with_its_reason(settings):
    result = run(*flags(settings.model_copy(update={"engine": "onnxrt"})))
    assert result.exit_code == 1
    assert "export" in result.output
