"""The threads of a server's processes under load, and their stacks: benchmarks/requests/process_profile.py."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from benchmarks.harness.raw_load import Answers, Target
from benchmarks.requests import process_profile
from tests.serving.waiting import wait_until

TARGET = Target(1, b"", 1)
BUSY = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
while True: pass
"""


@pytest.fixture(autouse=True)
def no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_profile, "drive", lambda *_: Answers())
    monkeypatch.setattr(process_profile, "_WARM_S", 0.5)


def test_the_busiest_thread_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        busy = psutil.Process(process.pid)

        def until_it_has_worked(_: float) -> None:
            """Wait until the process has used 0.1 s of CPU time, however late a busy machine gives it a core."""
            begun = busy.cpu_times().user
            wait_until(lambda: busy.cpu_times().user >= begun + 0.1)

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=until_it_has_worked)
        monkeypatch.setattr(process_profile, "time", clock)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            rows = process_profile.thread_times({"server": process.pid}, TARGET, 0.5)["server"]
        finally:
            process.kill()
    assert len(rows) == 2
    assert rows[0]["thread"] == process.pid
    assert rows[0]["user_ms"] > rows[1]["user_ms"]


def test_a_server_of_one_process_is_engine_and_front_end() -> None:
    assert process_profile.processes_of(7, 0) == {"server": 7}


def test_a_missing_py_spy_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process_profile.record_stacks({"server": 1}, TARGET, 1.0, tmp_path) == {"py-spy": "is not on PATH"}


def test_a_recording_that_fails_says_why_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/bash\ncase "$*" in *--native*) echo no symbols; exit 1;; esac\necho "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = process_profile.record_stacks({"engine": 5}, TARGET, 1.0, tmp_path / "stacks")
    assert said["engine-native"] == "1: no symbols"
    assert said["engine-gil"].startswith("0: record -d 1")
    assert len(list((tmp_path / "stacks").glob("engine-*.log"))) == 3
