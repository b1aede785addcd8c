"""Signals are handled one after the other, whichever thread the kernel delivers them to."""

from __future__ import annotations

import os
import signal
import threading

from service.processes.launcher.signal_queue import Signals
from tests.fakes.clock import Clock


def test_signals_are_returned_in_order_and_have_no_other_effect() -> None:
    with Signals([signal.SIGTERM, signal.SIGCHLD]) as signals:
        assert signals.wait(0.0) == []
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGCHLD)
        assert [number for number, _ in signals.wait(5.0)] == [signal.SIGTERM, signal.SIGCHLD]
        assert signals.wait(0.0) == []


def test_a_signal_that_arrives_between_waits_is_not_lost() -> None:
    with Signals([signal.SIGTERM]) as signals:
        thread = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM))
        thread.start()
        thread.join()
        assert [number for number, _ in signals.wait(5.0)] == [signal.SIGTERM]


def test_a_signal_has_the_time_of_its_arrival_however_late_it_is_returned() -> None:
    clock = Clock(100.0)
    with Signals([signal.SIGTERM], clock) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        clock.now = 200.0
        assert signals.wait(5.0) == [(signal.SIGTERM, 100.0)]


def test_afterwards_they_have_their_usual_effect() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals([signal.SIGTERM]):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
