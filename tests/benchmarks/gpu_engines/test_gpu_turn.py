"""The turn of a timed measurement on a GPU that jobs share: benchmarks/gpu_engines/gpu_turn.py."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from benchmarks.gpu_engines.gpu_turn import gpu_turn, of_one_step


def test_without_a_lane_no_step_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANE_SCRIPT", raising=False)
    with gpu_turn():
        pass


def test_other_jobs_pause_while_the_gpu_is_reserved_and_continue_if_the_step_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script, said, turn = tmp_path / "lanes.sh", tmp_path / "said", tmp_path / "turn"
    script.write_text(f'echo "$@" "${{LANE_GPU-none}}" >> {said}')
    step = of_one_step()
    for name, value in {"SCRIPT": script, "GPU": "1", "TURN": turn, "STEP": step["LANE_STEP"]}.items():
        monkeypatch.setenv(f"LANE_{name}", str(value))

    def fail_in_turn() -> None:
        with gpu_turn():
            assert said.read_text() == f"hush 1 LANE_STEP={step['LANE_STEP']} none\n"
            with turn.open() as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_turn()
    assert said.read_text().splitlines()[1] == "speak 1 none"
    with turn.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
