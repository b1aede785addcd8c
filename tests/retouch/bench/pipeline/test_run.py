"""Every pipeline variant is measured or gives a reason why not, and the figures match the work done."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from engines.base import BatchShape, Engine
from engines.cuda.api import Cuda
from engines.errors import EngineUnavailable, RetouchError
from engines.fake import FakeEngine
from engines.manifest import MANIFEST_FILE, Manifest
from retouch.bench.pipeline.report import print_rows, save_rows_plot
from retouch.bench.pipeline.run import VariantResult, Workload, measure
from retouch.bench.pipeline.variants import VARIANTS, Variant, variants_for
from retouch.command_line import app
from service.core.settings import Settings
from service.devices.gpu import open_gpu_device
from tests.fakes.gpu import FakeCvCuda, FakeStreamEngine, RacingRuntime
from tests.serving.fake_models import fake_manifest, write_model

SIZE = {"kind": "multiple", "multiple_of": 32, "sides": [64]}
FACADES = fake_manifest("facades", "translate", size=SIZE)


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    for manifest in (fake_manifest("photos", "inpaint", size=SIZE), FACADES):
        write_model(tmp_path / "models", manifest)
    return tmp_path / "models"


@pytest.fixture
def settings(models_dir: Path, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "models_dir": models_dir,
            "engine": "fake",
            "max_batch_size": 4,
            "codec_threads": 2,
            "engine_cache_dir": tmp_path / "cache",
        }
    )


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    hole = np.zeros((64, 64), np.uint8)
    hole[20:40, 20:40] = 255
    Image.fromarray(hole).save(tmp_path / "mask.png")
    return tmp_path / "mask.png"


def workload(pictures: Path, count: int = 6, **options: Any) -> Workload:
    files = [path.read_bytes() for path in sorted(pictures.iterdir())]
    return Workload("facades", [files[index % 3] for index in range(count)], None, warm_up=1, **options)


def graphs_engine(engine: Engine) -> Engine:
    engine.use_graphs = lambda on: None  # type: ignore[attr-defined]
    return engine


def test_on_a_cpu_three_rows_can_be_measured_and_the_others_say_why() -> None:
    rows = variants_for(FakeEngine(FACADES))
    assert [variant.name for variant, reason in rows if not reason] == [
        "sequential, saving in line",
        "saving off the path",
        "batched",
        "the same without saving",
    ]
    assert {reason for _, reason in rows if reason} == {"fake runs on the CPU"}
    assert rows[-1][0] == Variant("the same without saving", "none", concurrency=0, batched=True)


def test_on_a_gpu_every_row_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvcuda", SimpleNamespace())
    engine = FakeStreamEngine(FACADES, Cuda(RacingRuntime()), BatchShape(1, 64, 64))
    reasons = [reason for _, reason in variants_for(engine)]
    assert reasons == ["", "", "", "", "", "fake-stream has no graphs to leave out", ""]
    rows = variants_for(graphs_engine(engine))
    assert [variant for variant, _ in rows[:-1]] == list(VARIANTS)
    assert not any(reason for _, reason in rows)
    assert rows[-1][0].graphs


def test_without_cvcuda_or_streams_the_rows_that_need_them_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvcuda", None)
    engine = FakeStreamEngine(FACADES, Cuda(RacingRuntime()), BatchShape(1, 64, 64))
    assert "CV-CUDA does not load" in variants_for(engine)[2][1]
    plain = FakeEngine(FACADES)
    plain.device = "cuda:0"
    assert variants_for(plain)[3][1] == "fake computes from host arrays"


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[1], Variant("batched", concurrency=0, batched=True)])
def test_a_variant_works_off_the_job_one_by_one_or_in_batches(
    settings: Settings, pictures: Path, variant: Variant
) -> None:
    # slow enough for other requests to arrive while one is computed
    slow = settings.model_copy(update={"fake_batch_ms": 50.0})
    row = measure(slow if variant.batched else settings, workload(pictures, 12), variant)
    assert row.pictures == 12
    assert 0 < row.total_ms <= row.durable_ms
    assert 0 < row.p50_ms <= row.total_ms
    assert (row.batches < 12) if variant.batched else (row.batches == 12)
    assert row.gpu_busy is None
    assert row.tile == (64, 64)
    assert row.images_per_s == pytest.approx(12e3 / row.total_ms)


def test_overlapping_batches_are_measured_with_the_gpus_own_clock(
    settings: Settings, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = RacingRuntime()
    monkeypatch.setitem(sys.modules, "cvcuda", FakeCvCuda(runtime))
    open_gpu = partial(open_gpu_device, open_cuda=lambda index: Cuda(runtime, index))
    switched: list[bool] = []

    def opener(_settings: Settings) -> Callable[[Path, Manifest], Engine]:
        def open_model(_directory: Path, manifest: Manifest) -> Engine:
            engine = FakeStreamEngine(manifest, Cuda(runtime), BatchShape(8, 64, 64))
            engine.use_graphs = switched.append  # type: ignore[attr-defined]
            return engine

        return open_model

    row = measure(settings, workload(pictures), VARIANTS[-1], opener=opener, open_gpu=open_gpu)
    assert row.gpu_busy is not None
    assert row.gpu_busy == pytest.approx(row.batches * 0.0015 / row.total_ms * 1e3)
    assert switched == [True]
    measure(settings, workload(pictures), VARIANTS[1], opener=opener, open_gpu=open_gpu)
    assert switched == [True, False]


def test_a_model_that_cannot_be_served_is_an_error_and_no_row(settings: Settings, pictures: Path) -> None:
    def opener(_settings: Settings) -> Callable[[Path, Manifest], Engine]:
        def open_model(_directory: Path, _manifest: Manifest) -> Engine:
            raise EngineUnavailable("no GPU")

        return open_model

    # old enough not to count as half-written
    os.utime(settings.models_dir / "facades" / "1" / MANIFEST_FILE, (1e9, 1e9))
    with pytest.raises(RetouchError, match=r"facades cannot be served: .*no GPU"):
        measure(settings, workload(pictures), VARIANTS[0], opener=opener)


def test_rows_are_a_table_and_a_picture(tmp_path: Path) -> None:
    rows = [
        VariantResult("sequential", "", 50, 2889.0, 2889.0, 57.0, 50),
        VariantResult("batched", "", 50, 164.0, 300.0, 100.0, 7, 0.93, (256, 256)),
        VariantResult("graphs", "no GPU"),
    ]
    text = StringIO()
    print_rows(rows, Console(file=text, width=120), "50 pictures")
    said = text.getvalue()
    assert "17.62" in said
    assert "93%" in said
    assert "graphs: not available: no GPU" in said
    save_rows_plot(rows, tmp_path / "rows.png", "50 pictures")
    with Image.open(tmp_path / "rows.png") as picture:
        assert picture.width > 500
    assert rows[1].as_json()["images_per_s"] == 304.88
    assert rows[2].images_per_s == 0


def test_the_command_measures_a_folder_and_writes_its_reports(
    models_dir: Path, pictures: Path, mask: Path, tmp_path: Path
) -> None:
    report, plot = tmp_path / "rows.json", tmp_path / "rows.png"
    common = ["--models-dir", str(models_dir), "--engine", "fake", "--count", "4", "--max-batch-size", "2"]
    command = ["bench", "pipeline", "--images", str(pictures), "--masks", str(mask), *common]
    result = CliRunner().invoke(app, [*command, "--json", str(report), "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    written = json.loads(report.read_text())
    assert written["title"] == "4 pictures through photos/1 on fake fp32 (cpu)"
    assert [row["pictures"] for row in written["rows"]] == [4, 4, 0, 0, 4, 0, 4]
    assert plot.stat().st_size > 1000


@pytest.mark.parametrize("model", ["nobody/3", "photos/2", "photos/x", "photos/1/1"])
def test_a_model_that_is_not_there_is_named(models_dir: Path, pictures: Path, model: str) -> None:
    command = ["bench", "pipeline", "--images", str(pictures), "--models-dir", str(models_dir), "--model", model]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert f"no model {model}" in result.output


def test_a_report_that_could_not_be_written_is_refused_before_anything_is_measured(
    models_dir: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch, unwritable_report: tuple[list[str], str]
) -> None:
    arguments, message = unwritable_report
    monkeypatch.chdir(pictures.parent)
    common = ["--models-dir", str(models_dir), "--model", "facades", "--engine", "fake", "--count", "1"]
    result = CliRunner().invoke(app, ["bench", "pipeline", "--images", str(pictures), *common, *arguments])
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert "images/s" not in result.output


def test_load_for_a_server_needs_an_image() -> None:
    result = CliRunner().invoke(app, ["bench", "--rate", "5"])
    assert result.exit_code == 2
    assert "name an image or a folder to send" in result.output
