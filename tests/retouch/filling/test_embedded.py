"""Pictures are computed in the command's process, with only the needed model loaded, within the time limit."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from engines.base import Feed, Outputs
from engines.engine_choice import Candidate, EngineOptions
from engines.fake import FakeEngine
from engines.manifest import Manifest
from retouch.client.options import Task
from retouch.filling.embedded import open_embedded_filler
from retouch.filling.filler import FillResult
from service.core.errors import DeadlineExceeded, NotFound
from service.core.settings import Settings, SettingsInvalid
from service.saving.store import ResultStore
from tests.retouch.conftest import TEST_DATA
from tests.retouch.small_models import write_model


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, Any]:
    for name, task in (("photos", "inpaint"), ("facades", "translate"), ("extra", "translate")):
        write_model(tmp_path / "models", name, task)
    return {"models_dir": tmp_path / "models", "engine": "fake", "engine_cache_dir": tmp_path / "cache"}


def make(
    flags: dict[str, Any], task: Task, model: str | None = None, timeout_s: float = 60.0
) -> tuple[FillResult, list[str]]:
    """Make a picture; returns it and the names of the loaded models."""
    parts = {"image": (TEST_DATA / "dress.jpg").read_bytes(), "mask": (TEST_DATA / "dress_mask.png").read_bytes()}
    options = {"model": model} if model else {}

    async def run() -> tuple[FillResult, list[str]]:
        async with open_embedded_filler(flags, task, model, timeout_s=timeout_s) as filler:
            statuses = filler.pipeline.models.statuses()
            return await filler.fill(task, parts, options), [status.name for status in statuses]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("task", "model", "needed"),
    [("inpaint", None, "photos"), ("translate", None, "facades"), ("translate", "extra/1", "extra")],
)
def test_only_the_model_that_is_needed_is_loaded(flags, task, model, needed):
    result, loaded = make(flags, task, model)
    assert (result.model, loaded) == (f"{needed}/1", [needed])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEYS_FILE", "nowhere.json"),
        ("WEBHOOK_SECRET_FILE", "nowhere"),
        ("LEDGER_URL", "postgresql://127.0.0.1:1/retouch"),
        ("RESULTS_URL", "s3://results/here"),
        ("MODELS_URL", "s3://models/here"),
        ("PROMISE", "store"),
        ("OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("PUBLIC_URL", "https://images.example"),
    ],
)
def test_a_command_is_no_server_though_its_environment_is_that_of_one(flags, monkeypatch, name, value):
    """In a server's container the command must not join the fleet, take its jobs, or remove models that it fetched."""
    monkeypatch.setenv(f"RETOUCH_{name}", value)
    default = Settings.model_fields[name.lower()].default

    async def setting() -> object:
        async with open_embedded_filler(flags, "inpaint", None, timeout_s=60.0) as filler:
            return getattr(filler.pipeline.settings, name.lower())

    assert asyncio.run(setting()) == default
    assert make(flags, "inpaint")[0].model == "photos/1"


@pytest.mark.parametrize(("device", "warmed"), [("cpu", False), ("cuda:0", True)])
def test_one_picture_pays_for_no_servers_warm_up_on_a_cpu(flags, monkeypatch, device, warmed):
    computed: list[str] = []

    class Counting(FakeEngine):
        def infer(self, feed: Feed) -> Outputs:
            computed.append(self.manifest.name)
            return super().infer(feed)

    def open_counting(_directory: Path, manifest: Manifest, _options: EngineOptions) -> FakeEngine:
        engine = Counting(manifest)
        engine.device = device
        return engine

    monkeypatch.setattr(
        "engines.engine_choice.candidates_for", lambda _choice: (Candidate("fake", open_counting, False),)
    )
    make(flags, "translate")
    assert (len(computed) > 1) == warmed


def test_a_command_that_is_interrupted_while_it_starts_leaves_no_folder(flags, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started, start = threading.Event(), ResultStore.start

    def slowly(store: ResultStore) -> ResultStore:
        started.set()
        time.sleep(0.3)  # meanwhile the command is interrupted
        return start(store)

    monkeypatch.setattr(ResultStore, "start", slowly)

    async def interrupted() -> None:
        making = asyncio.create_task(open_embedded_filler(flags, "inpaint", None, timeout_s=9).__aenter__())
        await asyncio.to_thread(started.wait)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making

    asyncio.run(interrupted())
    assert list(tmp_path.glob("retouch-*")) == []


def test_picture_that_takes_too_long_is_given_up(flags):
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        make({**flags, "fake_batch_ms": 1500}, "translate", timeout_s=0.2)
    assert time.monotonic() - begun < 60


def test_a_command_that_names_its_model_hears_nothing_of_a_servers_defaults(flags, capfd):
    shutil.rmtree(flags["models_dir"] / "facades")
    result, _ = make(flags, "translate", "extra")
    assert result.model == "extra/1"
    assert "default model" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("task", ["inpaint", "translate"])
def test_a_task_without_a_model_ends_before_anything_is_loaded(flags, task):
    with pytest.raises(SettingsInvalid, match=f"name one with --model, or set RETOUCH_{task.upper()}_MODEL"):
        make({**flags, f"{task}_model": ""}, task)


def test_an_unknown_model_lists_the_available_ones(flags):
    with pytest.raises(NotFound, match=r"no model nope; available: extra/1, facades/1, photos/1$"):
        make(flags, "inpaint", "nope")
