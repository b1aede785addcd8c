"""Runs calls on a daemon thread, so that a call that hangs does not keep the process from ending.

A thread of `ThreadPoolExecutor` would keep it, because it is joined when the interpreter ends.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class RunThread:
    """One daemon thread for calls that must all be on the same thread; it ends when this object is closed or freed.

    Args:
        name: the thread's name.
        join_s: seconds that `close` waits for the call that is running.
    """

    def __init__(self, name: str, join_s: float) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._join_s = join_s
        self._end = weakref.finalize(self, self._calls.put, None)
        self._thread = threading.Thread(target=_run_calls, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the thread and wait for it; what it raises is raised here."""
        done: Future[None] = Future()
        self._calls.put((function, arguments, done))
        done.result()

    def close(self) -> bool:
        """End the thread; returns False if a call hangs and the thread does not end. A second call does not wait."""
        if self._end.alive:
            self._end()
            self._thread.join(self._join_s)
        return not self._thread.is_alive()


_Call = tuple[Callable[..., object], tuple[Any, ...], "Future[None]"]


def _run_calls(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        function, arguments, done = call
        try:
            function(*arguments)
        except BaseException as error:  # raised in the thread that waits for the call
            done.set_exception(error)
        else:
            done.set_result(None)
        del call, function, arguments, done  # else they would keep a session alive until the next call
