"""Time limit for the end of a process: when it has passed, the process logs what it still waits for and exits.

Waits in this repository have limits of their own. Some waits in libraries have none, such as gRPC's for its connections
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
"""Shorter than the launcher's limit, because the process can report more about itself than the launcher can."""
_LAST_RESORT_S = 1.0
"""Further seconds until C code ends the process, in case a hung thread holds the GIL or the log's lock."""
_STANDARD_ERROR = 2
"""File descriptor of standard error, as `sys.stderr` may have none."""


def end_within(seconds: float) -> None:
    """End this process with status 1 if it still runs after `seconds`; it first logs what its tasks wait for.

    The stacks of all threads follow on standard error. Called on the event loop.
    """
    arguments = (seconds, asyncio.get_running_loop())
    threading.Thread(target=_end_later, args=arguments, name="end-limit", daemon=True).start()
    faulthandler.dump_traceback_later(seconds + _LAST_RESORT_S, exit=True, file=_STANDARD_ERROR)


def write_stacks_on_request() -> None:
    """From now on, write the stacks of all threads to standard error on SIGUSR1."""
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, file=_STANDARD_ERROR)


def waits_of_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return what each unfinished task of a loop waits in: `FUNCTION:LINE > …`, the innermost function last."""
    return sorted(" > ".join(_awaited(task.get_coro())) for task in asyncio.all_tasks(loop))


def _end_later(seconds: float, loop: asyncio.AbstractEventLoop) -> None:
    time.sleep(seconds)
    _log.error(
        "the process did not exit in time; forcing it to exit", after_s=seconds, tasks_wait_in=waits_of_tasks(loop)
    )
    faulthandler.dump_traceback(file=_STANDARD_ERROR)
    os._exit(1)


def _awaited(outermost: Any) -> list[str]:
    """Return the chain of awaited functions, each as `FUNCTION:LINE`, beginning with the outermost."""
    found, awaited = [], outermost
    while awaited is not None:
        if inspect.isasyncgen(awaited):
            frame, after = awaited.ag_frame, awaited.ag_await
        elif hasattr(awaited, "cr_frame"):
            frame, after = awaited.cr_frame, awaited.cr_await
        else:  # a step of an asynchronous generator, found only among its references; or a future, which ends the chain
            awaited = next(filter(inspect.isasyncgen, gc.get_referents(awaited)), None)
            continue
        line = frame.f_lineno if frame is not None else None  # compiled functions have no line
        found.append(f"{awaited.__qualname__}:{line}" if line else awaited.__qualname__)
        awaited = after
    return found
