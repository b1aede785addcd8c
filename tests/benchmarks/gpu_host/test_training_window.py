"""The order of what training wants of two GPUs: benchmarks/gpu_host/training_window.sh, with jobs that sleep."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.gpu_host.lanes_script import CORE, ROOT, Lanes

SCRIPT = ROOT / "benchmarks/gpu_host/training_window.sh"


@pytest.mark.slow
def test_every_job_runs_and_two_gpus_are_timed_while_nothing_else_runs(lanes: Lanes, tmp_path: Path) -> None:
    places = {"REPO": str(ROOT), "WORK": str(tmp_path / "work"), "RESULTS": str(tmp_path / "results")}
    lanes.environment |= {**places, "CORES": CORE, "FAKE": "1"}
    start = tmp_path / "start"
    (start / "val").mkdir(parents=True)
    (start / "initial.pth").touch()
    (tmp_path / "work").mkdir()
    subprocess.run(["bash", SCRIPT, "begin", start, "60"], env=lanes.environment, check=True)
    lanes.call("wait", "60")
    jobs = {folder.name: folder for folder in lanes.state.glob("jobs/*")}
    assert {name: lanes.code(name) for name in jobs} == dict.fromkeys(jobs, "0")
    began = {name: int((folder / "began").read_text()) for name, folder in jobs.items()}
    assert max(began[name] for name in ("warm_s", "fill_256", "fill_384")) < began["scaling"] < began["fill"]
    assert max(began[name] for name in ("fill", "warm_1", "warm_2")) < began["pdgan"]
    assert (tmp_path / "results/pdgan").is_dir()
