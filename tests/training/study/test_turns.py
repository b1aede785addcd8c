"""Turns at a device: cells share it, except while one is timed, which uses it alone."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from training.study.turns import Turns


def test_a_timed_cell_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
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


def test_a_waiting_cell_names_the_one_that_uses_the_device(tmp_path: Path) -> None:
    heard = threading.Event()
    said: list[str] = []

    def listen(line: str) -> None:
        said.append(line)
        heard.set()

    def wait_for_turn() -> None:
        with Turns(tmp_path / "turn", "pgn fp32", listen).alone():
            pass

    with Turns(tmp_path / "turn", "pdgan bf16").alone():
        waiting = threading.Thread(target=wait_for_turn, daemon=True)
        waiting.start()
        assert heard.wait(10)
    waiting.join(10)
    assert said == ["has waited 0 s for the device, in use by pdgan bf16"]
    assert not (tmp_path / "turn").read_text("utf-8")


def test_a_child_that_was_forked_in_a_turn_does_not_keep_it(tmp_path: Path) -> None:
    read, write = os.pipe()
    with Turns(tmp_path / "turn").alone():
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # blocks until the parent closes its end
            os._exit(0)
    os.close(read)
    after: list[str] = []

    def take_turn() -> None:
        with Turns(tmp_path / "turn").alone():
            after.append("taken")

    taking = threading.Thread(target=take_turn, daemon=True)
    taking.start()
    taking.join(5)
    os.close(write)
    os.waitpid(child, 0)
    taking.join(5)
    assert after == ["taken"], "the child held the turn"


def test_without_a_file_no_cell_waits() -> None:
    turns = Turns(None)
    with turns.alone(), turns.alone(), turns.shared():
        pass
