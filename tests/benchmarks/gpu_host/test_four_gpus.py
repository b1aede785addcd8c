"""The order of the pending measurements on four GPUs: benchmarks/gpu_host/four_gpus.sh, with jobs that sleep."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.gpu_host.lanes_script import CORE, ROOT, Lanes

SCRIPT = ROOT / "benchmarks/gpu_host/four_gpus.sh"


def run_jobs(lanes: Lanes, tmp_path: Path, **settings: str) -> dict[str, int]:
    """Run all jobs, which sleep for a second each; returns the start time of each."""
    places = {name: str(tmp_path / name.lower()) for name in ("WORK", "RESULTS", "ASSETS", "LOGS")}
    cores = dict.fromkeys(("SERVE_CORES", "RACE_CORES", "PAIR_CORES", "FILL_CORES"), CORE)
    lanes.environment |= {"REPO": str(ROOT), "FAKE": "1", **places, **cores, **settings}
    start = tmp_path / "start"
    (start / "val").mkdir(parents=True)
    (start / "initial.pth").touch()
    (tmp_path / "work").mkdir()
    for words in (["serve"], ["train", str(start), "60"], ["int8"]):
        subprocess.run(["bash", SCRIPT, *words], env=lanes.environment, check=True)
    lanes.call("wait", "100")
    jobs = {folder.name: folder for folder in lanes.state.glob("jobs/*")}
    assert {name: lanes.code(name) for name in jobs} == dict.fromkeys(jobs, "0")
    return {name: int((folder / "began").read_text()) for name, folder in jobs.items()}


def shapes(lanes: Lanes) -> list[str]:
    """Return the SHAPES of FillNet's run: the side and the number of crops of each process's step, as `256:32`."""
    words = shlex.split((lanes.state / "jobs/fill/command").read_text())
    return next(word for word in words if word.startswith("SHAPES=")).removeprefix("SHAPES=").split()


@pytest.mark.slow
def test_every_job_runs_and_begins_after_what_it_needs(lanes: Lanes, tmp_path: Path) -> None:
    began = run_jobs(lanes, tmp_path)
    chain = ["served_compiled", "serve_512", "serve_256", "pipeline", "scaling", "pdgan"]
    assert [began[name] for name in chain] == sorted({began[name] for name in chain})
    assert max(began[name] for name in ("warm_s", "warm_1", "warm_2")) < began["pdgan"]
    assert began["serve_256"] < began["fill_384"]
    assert shapes(lanes) == ["256:32", "384:16"]
    assert began["serve_512"] < began["profile"]
    assert began["serve_256"] < began["int8"]
    assert (tmp_path / "results/pdgan").is_dir()


@pytest.mark.slow
def test_on_one_gpu_the_jobs_that_it_can_run_begin_after_what_they_need(lanes: Lanes, tmp_path: Path) -> None:
    began = run_jobs(lanes, tmp_path, ONE="1")
    assert set(began) == {"served_published", "served_compiled", "serve_512", "fill_256", "fill_384", "fill", "int8"}
    assert began["served_compiled"] < began["serve_512"] < began["int8"]
    assert began["serve_512"] < began["fill_384"]
    assert shapes(lanes) == ["256:64", "384:32"]


@pytest.mark.slow
def test_on_two_gpus_both_train_and_pause_for_timed_steps(lanes: Lanes, tmp_path: Path) -> None:
    began = run_jobs(lanes, tmp_path, TWO="1")
    fills = {"fill_256", "fill_384", "fill", "int8"}
    assert set(began) == {"served_published", "served_compiled", "serve_512", "warm_s", "scaling"} | fills
    assert began["served_compiled"] < began["serve_512"] < began["scaling"]
    assert began["warm_s"] < began["scaling"]
    assert shapes(lanes) == ["256:32", "384:16"]
