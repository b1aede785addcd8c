"""The longest time that a process takes to end: past it the process says what it still waits for, and ends.

The waits of this repository have limits of their own. Those of libraries have none, such as gRPC's for its connections
or Python's for the threads of an executor.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import inspect
import os
import signal
import sys
import threading
import time
from typing import Any

import structlog

_log = structlog.get_logger(__name__)

END_WITHIN_S = 17.0
"""Less than the launcher allows, because the process can report more about itself than the launcher can."""
_LAST_RESORT_S = 1.0
"""Time after which C code ends the process: a thread that hangs may hold the interpreter's lock, or that of the log."""
_STANDARD_ERROR = 2
"""The descriptor, as `sys.stderr` may have none."""


def end_within(seconds: float) -> None:
    """End this process with status 1 if it still runs in so many seconds, after a log line of what it waits for.

    Called on the event loop. The stacks of all threads follow the line.
    """
    arguments = (seconds, asyncio.get_running_loop())
    threading.Thread(target=_end_later, args=arguments, name="end-limit", daemon=True).start()
    faulthandler.dump_traceback_later(seconds + _LAST_RESORT_S, exit=True, file=_STANDARD_ERROR)


def write_stacks_on_request() -> None:
    """Write the stacks of all threads to standard error on SIGUSR1, from now on."""
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, file=_STANDARD_ERROR)


def waits_of_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return what each unfinished task of a loop waits for: functions with their lines, the innermost last."""
    return sorted(" > ".join(_awaited(task.get_coro())) for task in asyncio.all_tasks(loop))


def _end_later(seconds: float, loop: asyncio.AbstractEventLoop) -> None:
    time.sleep(seconds)
    _log.error("the process does not end; it is ended", after_s=seconds, tasks_wait_in=waits_of_tasks(loop))
    faulthandler.dump_traceback(file=_STANDARD_ERROR)
    os._exit(1)


def _awaited(outermost: Any) -> list[str]:
    """Return the functions that wait for each other, from the outermost on."""
    found, awaited = [], outermost
    while awaited is not None:
        if inspect.isasyncgen(awaited):
            frame, after = awaited.ag_frame, awaited.ag_await
        elif hasattr(awaited, "cr_frame"):
            frame, after = awaited.cr_frame, awaited.cr_await
        else:  # a step of an asynchronous generator, which has no other way to it; or a future, which has none
            awaited = next(filter(inspect.isasyncgen, gc.get_referents(awaited)), None)
            continue
        line = frame.f_lineno if frame is not None else None  # compiled ones have no line
        found.append(f"{awaited.__qualname__}:{line}" if line else awaited.__qualname__)
        awaited = after
    return found
