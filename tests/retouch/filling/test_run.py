"""Runs of fills, and their end while a file cannot be read."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Timer

import pytest

from retouch.client.options import Task
from retouch.filling.filler import FillResult
from retouch.filling.jobs import FillJob
from retouch.filling.run import FillOutcome, FillRun


class Copies:
    """A filler whose result is the image itself."""

    async def fill(self, _task: Task, parts: Mapping[str, bytes], _options: Mapping[str, str]) -> FillResult:
        return FillResult((parts["image"],), "photos/1", "fake/fp32")


def run_of(outcomes: list[FillOutcome]) -> FillRun:
    return FillRun(Copies(), "inpaint", {}, 1, time.monotonic, outcomes.append)


def test_an_interrupted_run_does_not_wait_for_a_pipe_without_a_writer(tmp_path: Path) -> None:
    pipe, released = tmp_path / "image.png", Event()
    os.mkfifo(pipe)

    def release() -> None:
        released.set()
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    rescue = Timer(5.0, release)
    rescue.start()
    job = FillJob(pipe, None, tmp_path / "out.png", "png")
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(asyncio.wait_for(run_of([]).run([job]), 0.1))
    assert not released.is_set(), "it ended only when the pipe did"
    rescue.cancel()
    release()


def test_files_that_cannot_be_read_are_reported_and_others_are_filled(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(b"picture")
    (tmp_path / "empty.png").touch()
    names, outcomes = ("missing.png", "empty.png", "good.png"), list[FillOutcome]()
    asyncio.run(run_of(outcomes).run([FillJob(tmp_path / one, None, tmp_path / f"out-{one}", "png") for one in names]))
    missing, empty, good = (outcome.error for outcome in outcomes)
    assert missing == f"{tmp_path / 'missing.png'} cannot be read (No such file or directory)"
    assert (empty, good) == (f"{tmp_path / 'empty.png'} is empty", None)
    assert (tmp_path / "out-good.png").read_bytes() == b"picture"
