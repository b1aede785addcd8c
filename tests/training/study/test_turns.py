"""Turns at a device: together while nobody is timed, alone while somebody is."""

from __future__ import annotations

import threading
from pathlib import Path

from training.study.turns import Turns


def test_who_is_timed_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    turns, said = Turns(tmp_path / "turn"), []

    def be_timed() -> None:
        with turns.alone():
            said.append("timed")

    with turns.shared():
        with Turns(tmp_path / "turn").shared():
            said.append("prepared together")
        timed = threading.Thread(target=be_timed, daemon=True)
        timed.start()
        timed.join(0.05)
        said.append("prepared")
    timed.join(10)
    assert said == ["prepared together", "prepared", "timed"]


def test_without_a_file_nobody_waits() -> None:
    turns = Turns(None)
    with turns.alone(), turns.alone(), turns.shared():
        pass
