"""Threads that wait for the interpreter get it soon."""

from __future__ import annotations

import sys

import pytest

from service.lifecycle.interpreter import SWITCH_S, shorten_switch_interval


def test_a_thread_waits_less_than_a_millisecond_for_its_turn() -> None:
    before = sys.getswitchinterval()
    try:
        shorten_switch_interval()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        assert SWITCH_S < 1e-3
    finally:
        sys.setswitchinterval(before)
