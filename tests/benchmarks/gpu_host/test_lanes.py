"""Jobs in lanes on a host that accepts only short commands: benchmarks/gpu_host/lanes.sh."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.benchmarks.gpu_host.lanes_script import CORE, SCRIPT, Lanes
from tests.serving.waiting import wait_until


def _state_of(process: str) -> str:
    """Return the state letter of a process from /proc; empty if it does not exist."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter: it was reaped between opening and reading
        return ""


def _states(lanes: Lanes, wanted: str) -> str:
    """Return a command that prints the states of `beside` and `elsewhere`: these, or what they are after ten seconds.

    A process that was sent a signal stops, or goes on, only when it gets its core.
    """
    one = f"cut -d' ' -f3 /proc/$(cat {lanes.state}/jobs/$job/process)/stat"
    look = f"states=$(echo $(for job in beside elsewhere; do {one}; done))"
    return f'for _ in $(seq 100); do {look}; [ "$states" != "{wanted}" ] || break; sleep 0.1; done; echo $states'


def test_jobs_run_in_order_with_their_settings_cores_and_gpu(lanes: Lanes) -> None:
    lanes.call("begin", "a", CORE, "3")
    lanes.call("queue", "a", "one", "60", "WORD=two words", "sh", "-c", 'echo "$WORD" "$CUDA_VISIBLE_DEVICES"; exit 3')
    lanes.call("queue", "a", "two", "60", "taskset", "-pc", "1")
    said = lanes.call("wait", "60")
    assert (lanes.code("one"), lanes.log("one"), lanes.code("two")) == ("3", "two words 3\n", "0")
    assert "0 wait, 2 ended, failed: one=3" in said


def test_a_job_waits_for_its_needs_and_lets_others_pass(lanes: Lanes) -> None:
    lanes.call("begin", "a", CORE, "0")
    lanes.call("begin", "b", CORE, "0")
    lanes.call("queue", "a", "last", "60", "needs=first", "sh", "-c", f"cat {lanes.state}/jobs/first/code")
    lanes.call("queue", "a", "passing", "60", "true")
    lanes.call("wait", "60", "passing")
    assert "needs: first" in lanes.call("status")
    lanes.call("queue", "b", "first", "60", "true")
    lanes.call("wait", "60")
    assert lanes.log("last") == "0\n"


def test_while_a_job_runs_alone_others_on_its_gpu_pause(lanes: Lanes) -> None:
    for lane, gpu in (("a", "0"), ("b", "0"), ("c", "1")):
        lanes.call("begin", lane, CORE, gpu)
    sleeping = ("sh", "-c", "echo begun; exec sleep 50")  # only what has begun to run is paused
    lanes.call("queue", "a", "beside", "60", *sleeping)
    lanes.call("queue", "c", "elsewhere", "60", *sleeping)
    lanes.until_written("beside/process", "beside/log", "elsewhere/process", "elsewhere/log")
    lanes.call("queue", "b", "alone", "60", "alone", "bash", "-c", _states(lanes, "T S"))
    lanes.call("queue", "b", "after", "60", "bash", "-c", _states(lanes, "S S"))
    lanes.call("wait", "60", "after")
    assert lanes.log("alone").split() == ["T", "S"]
    assert lanes.log("after").split() == ["S", "S"]


def test_a_cancelled_job_ends_with_its_processes_and_one_that_waits_never_begins(lanes: Lanes) -> None:
    lanes.call("begin", "a", CORE, "0")
    lanes.call("queue", "a", "runs", "60", "bash", "-c", "setsid sleep 50 & echo $!; wait")
    lanes.call("queue", "a", "waits", "60", "true")
    lanes.until_written("runs/log")
    lanes.call("cancel", "waits", "runs")
    lanes.call("wait", "60")
    assert (lanes.code("runs"), lanes.code("waits")) == ("cancelled", "cancelled")
    child = lanes.log("runs").strip()
    wait_until(lambda: _state_of(child) in {"", "Z"}, 20)  # it dies once it gets the core; by itself after 50 s
    assert not (lanes.state / "jobs/waits/log").exists()


def test_a_job_that_is_cancelled_while_it_begins_is_ended(lanes: Lanes, tmp_path: Path) -> None:
    programs, begins, go = tmp_path / "programs", tmp_path / "begins", tmp_path / "go"
    programs.mkdir()
    script = f'#!/bin/sh\n: > {begins}; until [ -e {go} ]; do sleep 0.05; done; exec "{shutil.which("date")}" "$@"\n'
    lanes.call("begin", "first", CORE, "1")  # it asks for the time as well
    (programs / "date").write_text(script)  # the time is asked when a job begins, before it has a process
    (programs / "date").chmod(0o755)
    lanes.environment["PATH"] = f"{programs}:{lanes.environment['PATH']}"
    lanes.call("begin", "a", CORE, "0")
    lanes.call("queue", "a", "begins", "60", "sleep", "50")
    wait_until(begins.exists, 20)
    lanes.call("cancel", "begins")
    go.touch()
    lanes.until_written("begins/seconds")
    assert lanes.code("begins") == "cancelled"
    assert int((lanes.state / "jobs/begins/seconds").read_text()) < 40


def test_results_are_packed_without_models(lanes: Lanes) -> None:
    lanes.call("begin", "a", CORE, "0")
    for name in ("figures.json", "model.onnx"):
        (lanes.state / name).write_text("{}")
    lanes.call("pack", "some")
    with tarfile.open(lanes.out / "some.tar.gz") as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert "figures.json" in names
    assert "model.onnx" not in names


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("queue", "z", "job", "60", "true"), 1, "there is no lane z: begin it first"),
        (("status",), 1, "no lane has begun"),
        (("wait", "5"), 1, "no lane has begun"),
        (("pack",), 1, "nothing to pack"),
        (("fly",), 2, "no step fly"),
    ],
)
def test_impossible_requests_are_reported(lanes: Lanes, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in lanes.call(*words, code=code)


@pytest.mark.parametrize("words", [("job",), ("no/folder", "true")], ids=["no command", "a name that is a path"])
def test_no_job_waits_for_one_that_cannot_begin(lanes: Lanes, words: tuple[str, ...]) -> None:
    lanes.call("begin", "a", CORE, "0")
    name, *command = words
    lanes.call("queue", "a", name, "60", *command, code=1)
    assert "0 wait, 0 ended" in lanes.call("wait", "60")


def test_every_script_of_a_gpu_host_is_valid_bash() -> None:
    for script in sorted(SCRIPT.parent.glob("*.sh")):
        subprocess.run(["bash", "-n", script], check=True)
