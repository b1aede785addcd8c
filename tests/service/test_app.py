"""The log at the start: the models folder, when the server is ready, and with which models."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from engines.base import Engine
from engines.fake import FakeEngine
from engines.load_report import LoadReport
from engines.manifest import Manifest
from service.app import Service, open_service
from service.batching.local_backend import open_local_backend
from service.core.settings import Settings
from tests.fakes.captured_logs import capture_logs
from tests.fakes.clock import Clock
from tests.serving.waiting import until

AddModel = Callable[..., Path]


def settings_of(folder: Path, models: Path) -> Settings:
    return Settings(models_dir=models, results_dir=folder / "results", engine="fake", model_poll_s=0.01)


def named(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


async def test_a_server_says_when_it_is_ready_and_with_which_models_and_engines(
    tmp_path: Path, models_dir: Path
) -> None:
    with capture_logs() as lines:
        async with open_service(settings_of(tmp_path, models_dir)):
            await until(lambda: named(lines, "ready"))
    (line,) = named(lines, "ready")
    assert line["models"] == ["facades/1 on fake/fp32", "photos/1 on fake/fp32"]
    assert line["after_s"] >= 0
    assert not named(lines, "no models")
    assert not named(lines, "not ready"), "the end is no outage"
    assert not named(lines, "default model is not served")


async def test_a_misspelt_default_model_is_told_at_the_start(tmp_path: Path, models_dir: Path) -> None:
    settings = settings_of(tmp_path, models_dir).model_copy(update={"inpaint_model": "photo"})
    with capture_logs() as lines:
        async with open_service(settings):
            await until(lambda: named(lines, "ready"))
    (line,) = named(lines, "default model is not served")
    assert (line["log_level"], line["setting"], line["model"]) == ("warning", "inpaint_model", "photo")
    assert "--inpaint-model" in line["to_do"]
    assert line["models"] == ["facades/1", "photos/1"]


async def test_while_models_load_the_reasons_say_which_and_how_far(tmp_path: Path, models_dir: Path) -> None:
    may_load = threading.Event()

    def slowly(_: Path, manifest: Manifest) -> Engine:
        with report.loading(manifest.key):
            report.step("building its plan, 40 %")
            may_load.wait(30)
            return FakeEngine(manifest)

    report = LoadReport(Clock())
    settings = settings_of(tmp_path, models_dir)
    open_backend = partial(open_local_backend, open_model=slowly, report=report)
    async with open_service(settings, open_backend) as service:
        expected = ["models are loading: photos/1 (1 of 2), building its plan, 40 %, for 0 s"]
        await until(lambda: service.unready_reasons() == expected)
        may_load.set()
        await until(lambda: service.unready_reasons() == [])


async def test_a_model_under_a_name_that_is_not_served_is_told_once(
    tmp_path: Path, models_dir: Path, add_model: AddModel
) -> None:
    def told(lines: list[Any]) -> list[Any]:
        return named(lines, "folder is not served")

    with capture_logs() as lines:
        async with open_service(settings_of(tmp_path, models_dir)):
            await until(lambda: named(lines, "ready"))
            (models_dir / "photos/1").rename(models_dir / "photos/v1")
            await until(lambda: told(lines))
            add_model(models_dir, "later", "inpaint")
            await until(lambda: "later/1" in str(lines))
    (line,) = told(lines)
    assert (line["log_level"], line["folder"]) == ("warning", str(models_dir / "photos/v1"))
    assert "a version is a number" in line["reason"]


async def test_an_empty_models_folder_is_named_in_the_log_and_not_to_clients(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with open_service(settings_of(tmp_path, tmp_path / "nowhere")) as service:
            await until(lambda: named(lines, "no models"))
            reasons = service.unready_reasons()
    (line,) = named(lines, "no models")
    assert (line["log_level"], line["folder"]) == ("warning", str(tmp_path / "nowhere"))
    assert line["reason"] == "the folder is not there"
    assert reasons == ["no model can be served (the models folder is empty or missing; the server's log names it)"]
    assert not named(lines, "ready")


async def test_a_server_that_gets_models_later_says_that_it_is_ready_and_when_it_is_no_more(
    tmp_path: Path, add_model: AddModel
) -> None:
    def is_over(service: Service) -> bool:
        return service.outage.over

    models = tmp_path / "later"
    with capture_logs() as lines:
        async with open_service(settings_of(tmp_path, models)) as service:
            await until(lambda: named(lines, "no models"))
            add_model(models, "photos", "inpaint")
            await until(lambda: is_over(service))
            shutil.rmtree(models / "photos")
            await until(lambda: named(lines, "not ready"))
    assert [line["models"] for line in named(lines, "ready")] == [["photos/1 on fake/fp32"]]
    assert "no model can be served" in named(lines, "not ready")[0]["reasons"][0]
    assert len(named(lines, "no models")) == 1
