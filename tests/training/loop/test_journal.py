"""The log of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.loop.journal import LOG_FILE, Journal


def lines(directory: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (directory / LOG_FILE).read_text().splitlines()]


def test_figures_are_lines_by_step(tmp_path: Path) -> None:
    with Journal(tmp_path, first=0, total=9) as journal:
        journal.record(3, {"loss": 0.5})
        journal.record(6, {"loss": 0.25})
    assert lines(tmp_path) == [{"step": 3, "loss": 0.5}, {"step": 6, "loss": 0.25}]


def test_a_run_that_goes_on_drops_lines_of_steps_that_it_takes_again_and_torn_ones(tmp_path: Path) -> None:
    with Journal(tmp_path, first=0, total=9) as journal:
        for step in range(1, 6):
            journal.record(step, {"loss": 1.0})
    with (tmp_path / LOG_FILE).open("a") as file:
        file.write('{"step": 3, "lo')
    with Journal(tmp_path, first=3, total=9) as journal:
        journal.record(4, {"loss": 2.0})
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(1, 1), (2, 1), (3, 1), (4, 2)]


def test_a_log_that_cannot_be_written_anew_stays_as_it_is(tmp_path: Path) -> None:
    with Journal(tmp_path, first=0, total=9) as journal:
        journal.record(1, {"loss": 1.0})
        journal.record(5, {"loss": 1.0})
    (tmp_path / ".log.jsonl.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        Journal(tmp_path, first=3, total=9)
    assert [line["step"] for line in lines(tmp_path)] == [1, 5]


def test_processes_that_do_not_lead_write_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path, first=0, total=9, writes=False) as journal:
        journal.record(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_figures_reach_tensorboard(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with Journal(tmp_path, first=0, total=9) as journal:
        journal.record(3, {"loss": 0.5})
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(3, 0.5)]
