"""A cell's processes end with it: at its time limit, and when the study itself is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.waiting import wait_until
from training.study.process_group import run_in_group

ROOT = Path(__file__).resolve().parents[3]


def with_a_child(note: Path) -> list[str]:
    """Return a command that starts a child, writes the child's id to `note`, and waits for it."""
    return ["sh", "-c", f"sleep 600 & echo $! >'{note}'; wait"]


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter: it was reaped between opening and reading
        return False
    return state != "Z"  # a zombie that its new parent has not reaped yet


DEFAULT_SIGNALS = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
"""First lines of each test program: nohup and a shell's `&` ignore some signals, and coverage handles SIGTERM."""
STARTED_AND_SIGNALLED = """
import os, subprocess, time
from pathlib import Path
from training.study.process_group import run_in_group

class EndedWhileStarting(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        while not Path(NOTE).exists() or not Path(NOTE).read_text().endswith("\\n"):
            time.sleep(0.01)
        os.kill(os.getpid(), SENT)

subprocess.Popen = EndedWhileStarting
run_in_group(COMMAND, None)
"""


def test_a_process_that_ends_in_time_says_how() -> None:
    assert run_in_group(["sh", "-c", "exit 3"], 10) == 3


def begin_waiting_at(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the limits of processes begin when `note` is written, however late a busy machine starts a process."""
    wait = subprocess.Popen.wait

    def wait_from_the_note(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        wait_until(lambda: written(note))
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_from_the_note)


def written(note: Path) -> bool:
    return note.exists() and note.read_text().endswith("\n")


def test_the_limit_ends_what_a_process_has_started_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_waiting_at(tmp_path / "child", monkeypatch)
    with pytest.raises(subprocess.TimeoutExpired):
        run_in_group(with_a_child(tmp_path / "child"), 0.3)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_running(child))


def test_the_limit_ends_processes_of_another_session_if_their_parent_handles_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun starts its workers in sessions of their own, and ends them on SIGTERM."""
    note = tmp_path / "worker"
    begin_waiting_at(note, monkeypatch)
    with pytest.raises(subprocess.TimeoutExpired):
        run_in_group(["sh", "-c", f"setsid sleep 600 & trap 'kill $!; exit 1' TERM; echo $! >'{note}'; wait"], 0.5)
    wait_until(lambda: not is_running(int(note.read_text())))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_study_that_is_ended_ends_its_cell(sent: signal.Signals, tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = f"""{DEFAULT_SIGNALS}
from training.study.process_group import run_in_group
run_in_group({with_a_child(note)!r}, None)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL) as study:
        wait_until(lambda: written(note))
        os.kill(study.pid, sent)
        assert study.wait(60) != 0
    child = int(note.read_text())
    wait_until(lambda: not is_running(child))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_the_cell_is_being_started_ends_it_too(sent: signal.Signals, tmp_path: Path) -> None:
    note = tmp_path / "child"
    given = f"NOTE, SENT, COMMAND = {str(note)!r}, {int(sent)}, {with_a_child(note)!r}"
    code = DEFAULT_SIGNALS + given + STARTED_AND_SIGNALLED
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL) as study:
        assert study.wait(60) == (-sent if sent == signal.SIGINT else 128 + sent)
    child = int(note.read_text())
    wait_until(lambda: not is_running(child))
