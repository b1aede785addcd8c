"""The lock of a device: cells share it, except while one is timed, which uses it exclusively."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from training.study.device_lock import DeviceLock


def test_a_timed_cell_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    lock, said = DeviceLock(tmp_path / "lock"), []

    def be_timed() -> None:
        with lock.exclusive():
            said.append("timed")

    with lock.shared():
        with DeviceLock(tmp_path / "lock").shared():
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

    def wait_for_lock() -> None:
        with DeviceLock(tmp_path / "lock", "pgn fp32", listen).exclusive():
            pass

    with DeviceLock(tmp_path / "lock", "pdgan bf16").exclusive():
        waiting = threading.Thread(target=wait_for_lock, daemon=True)
        waiting.start()
        assert heard.wait(10)
    waiting.join(10)
    assert said == ["has waited 0 s for the device, in use by pdgan bf16"]
    assert not (tmp_path / "lock").read_text("utf-8")


def test_a_child_that_was_forked_under_the_lock_does_not_keep_it(tmp_path: Path) -> None:
    read, write = os.pipe()
    with DeviceLock(tmp_path / "lock").exclusive():
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # blocks until the parent closes its end
            os._exit(0)
    os.close(read)
    after: list[str] = []

    def take_lock() -> None:
        with DeviceLock(tmp_path / "lock").exclusive():
            after.append("taken")

    taking = threading.Thread(target=take_lock, daemon=True)
    taking.start()
    taking.join(30)
    taken = list(after)
    os.close(write)
    os.waitpid(child, 0)
    assert taken == ["taken"], "the child kept the lock"


def test_without_a_file_no_cell_waits() -> None:
    lock = DeviceLock(None)
    with lock.exclusive(), lock.exclusive(), lock.shared():
        pass
