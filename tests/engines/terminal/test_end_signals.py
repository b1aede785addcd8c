from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engines.terminal.end_signals import ending_in_order

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
