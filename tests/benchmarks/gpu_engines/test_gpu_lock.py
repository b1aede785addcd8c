"""The lock of a GPU that jobs share, while one of them is timed: benchmarks/gpu_engines/gpu_lock.py."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from benchmarks.gpu_engines.gpu_lock import gpu_lock, step_marker


def test_without_a_lane_no_step_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANE_SCRIPT", raising=False)
    with gpu_lock():
        pass


def test_other_jobs_pause_while_the_gpu_is_reserved_and_continue_if_the_step_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script, said, lock = tmp_path / "lanes.sh", tmp_path / "said", tmp_path / "lock"
    script.write_text(f'echo "$@" "${{LANE_GPU-none}}" >> {said}')
    step = step_marker()
    for name, value in {"SCRIPT": script, "GPU": "1", "LOCK": lock, "STEP": step["LANE_STEP"]}.items():
        monkeypatch.setenv(f"LANE_{name}", str(value))

    def fail_under_the_lock() -> None:
        with gpu_lock():
            assert said.read_text() == f"pause 1 LANE_STEP={step['LANE_STEP']} none\n"
            with lock.open() as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_under_the_lock()
    assert said.read_text().splitlines()[1] == "resume 1 none"
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
