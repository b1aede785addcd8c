from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engines.terminal.end_signals import ending_in_order, ending_within

pytestmark = pytest.mark.usefixtures("_end_signals_as_a_shell_leaves_them")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_command_leaves_no_temporary_folder(tmp_path: Path, number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as ended, ending_in_order(), TemporaryDirectory(dir=tmp_path):
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_is_ignored_or_handled_already_stays_so() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    with ending_in_order():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_nothing_changes_in_other_threads() -> None:
    def handler() -> object:
        with ending_in_order():
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(handler).result() is signal.SIG_DFL


def test_a_command_that_ends_in_time_does_so_in_order(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended, ending_within(60.0, pytest.fail), TemporaryDirectory(dir=tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143
    assert list(tmp_path.iterdir()) == []
    assert signal.set_wakeup_fd(-1) == -1


_IN_A_LIBRARY = """
import ctypes, signal
from contextlib import suppress
from engines.terminal.end_signals import ending_within

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # where the coverage is measured, it has a handler
mutex = ctypes.create_string_buffer(128)
def tell() -> None:
    print("what was done", flush=True)
    raise BrokenPipeError  # as where the terminal was closed

with ending_within(0.1, tell):
    with suppress(SystemExit):  # in case the signal comes too early
        print("begun", flush=True)
        for _ in range(2):  # the second waits for ever, and not for Python
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_waits_for_a_library_is_ended_and_says_what_was_done(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _IN_A_LIBRARY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.stdout.read() == "what was done\n"
    assert process.returncode == 128 + number
