"""The order of the open measurements on four GPUs: benchmarks/gpu_host/four_gpus.sh, with jobs that sleep."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.gpu_host.lanes_script import CORE, ROOT, Lanes

SCRIPT = ROOT / "benchmarks/gpu_host/four_gpus.sh"


@pytest.mark.slow
def test_every_job_runs_and_begins_after_what_it_needs(lanes: Lanes, tmp_path: Path) -> None:
    places = {name: str(tmp_path / name.lower()) for name in ("WORK", "RESULTS", "ASSETS", "LOGS")}
    cores = dict.fromkeys(("SERVE_CORES", "RACE_CORES", "PAIR_CORES", "FILL_CORES"), CORE)
    lanes.environment |= {"REPO": str(ROOT), "FAKE": "1", **places, **cores}
    start = tmp_path / "start"
    (start / "val").mkdir(parents=True)
    (start / "initial.pth").touch()
    (tmp_path / "work").mkdir()
    for words in (["serve"], ["train", str(start), "60"], ["int8"]):
        subprocess.run(["bash", SCRIPT, *words], env=lanes.environment, check=True)
    lanes.call("wait", "100")
    jobs = {folder.name: folder for folder in lanes.state.glob("jobs/*")}
    assert {name: lanes.code(name) for name in jobs} == dict.fromkeys(jobs, "0")
    began = {name: int((folder / "began").read_text()) for name, folder in jobs.items()}
    chain = ["served_compiled", "serve_512", "serve_256", "pipeline", "scaling", "pdgan"]
    assert [began[name] for name in chain] == sorted({began[name] for name in chain})
    assert max(began[name] for name in ("warm_s", "warm_1", "warm_2")) < began["pdgan"]
    assert began["serve_256"] < began["fill_384"]
    assert began["serve_512"] < began["profile"]
    assert began["serve_256"] < began["int8"]
    assert (tmp_path / "results/pdgan").is_dir()
