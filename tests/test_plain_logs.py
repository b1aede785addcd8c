"""The tests' logs of servers' threads: a line may be late for the standard output of its test."""

from __future__ import annotations

import io
import sys
from threading import Event, Thread

import pytest
import structlog


def test_a_line_whose_standard_output_goes_while_it_is_written_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gone, raised = Event(), Event(), list[Exception]()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            begun.set()
            assert gone.wait(60)
            return super().write(text)

    def log() -> None:
        try:
            structlog.get_logger().info("late")
        except ValueError as error:
            raised.append(error)

    thread, out = Thread(target=log), Slow()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        thread.start()
        assert begun.wait(60)
    out.close()
    gone.set()
    thread.join(60)
    assert raised == []
