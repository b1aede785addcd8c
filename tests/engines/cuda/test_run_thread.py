"""Calls run on one daemon thread; a hanging call delays neither its closing nor the end of the process."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import pytest

from engines.cuda.run_thread import RunThread


def test_calls_run_on_one_thread_and_raise_where_they_are_waited_for():
    thread, ran_on = RunThread("calls", 5), set[str]()
    for _ in range(2):
        thread.call(lambda: ran_on.add(threading.current_thread().name))
    with pytest.raises(ZeroDivisionError):
        thread.call(divmod, 1, 0)
    assert ran_on == {"calls"}
    assert thread.close()


def test_closing_waits_once_and_briefly_for_a_call_that_hangs():
    thread, begun, leave = RunThread("hangs", 0.05), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        leave.wait(20)

    caller = threading.Thread(target=thread.call, args=(hang,))
    caller.start()
    assert begun.wait(5)
    assert not thread.close()
    assert not thread.close()
    leave.set()
    caller.join(5)
    assert not caller.is_alive()


def test_a_thread_that_nobody_closed_ends_when_it_is_freed():
    thread = RunThread("freed", 5)
    thread.call(int)
    del thread
    gc.collect()
    until = time.monotonic() + 5
    while any(one.name == "freed" for one in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.005)
    assert not any(one.name == "freed" for one in threading.enumerate())


def test_the_process_ends_although_a_call_hangs():
    program = """
import threading
from engines.cuda.run_thread import RunThread
thread, begun = RunThread("hangs", 0.05), threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
threading.Thread(target=thread.call, args=(hang,), daemon=True).start()
begun.wait(5)
print(thread.close())
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=20, check=True, capture_output=True, text=True)
    assert ended.stdout == "False\n"
