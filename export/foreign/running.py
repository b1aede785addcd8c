"""Runs the child that reads a foreign file: starts it, follows its steps, ends it when its time is over."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from pydantic import ValidationError

from engines.files.regular import read_regular
from export.errors import GraphRefused
from export.foreign.child import STEP
from export.foreign.messages import REPORT_FILE, Job, Report, printable

_MAX_REPORT_BYTES = 2**20
_MAX_OUTPUT_BYTES = 2**20
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from export.foreign.child import main; main()"


def read_in_child(job: Job, notify: Callable[[str], None]) -> Report:
    """Run the child and return its report.

    Raises:
        GraphRefused: the child exceeded its memory or time, or ended without a valid report.
    """
    child = _start(job.scratch)
    try:
        status, said = _converse(child, job, notify)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # also ends what the child may have started
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    try:
        return Report.model_validate_json(read_regular(job.scratch / REPORT_FILE, _MAX_REPORT_BYTES))
    except FileNotFoundError:
        raise GraphRefused(_ended(job, status, said)) from None
    except (OSError, ValidationError) as error:
        raise GraphRefused(f"{job.graph.name}: the process that read it returned no valid report") from error


def _start(scratch: Path) -> subprocess.Popen[bytes]:
    """Start Python without the user's environment; it finds packages where this process does."""
    few_threads = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "4"}  # each thread reserves address space
    return subprocess.Popen(  # noqa: S603 -- arguments of our own
        [sys.executable, "-I", "-c", _START, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=scratch,
        env={"PATH": os.defpath, "HOME": str(scratch), "TMPDIR": str(scratch), **few_threads},
        start_new_session=True,
    )


def _converse(child: subprocess.Popen[bytes], job: Job, notify: Callable[[str], None]) -> tuple[int | None, str]:
    """Give the child its job and follow its steps until it ends.

    Returns:
        Its exit status, None if it took too long or wrote too much; and the last line that it wrote, except steps.
    """
    assert child.stdin is not None  # noqa: S101 -- both are pipes
    assert child.stdout is not None  # noqa: S101
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write(job.model_dump_json().encode())
    end, line, last_line, size = monotonic() + job.limits.seconds, b"", b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while (left := end - monotonic()) > 0 and size < _MAX_OUTPUT_BYTES:
            if not selector.select(left):
                continue
            if not (block := os.read(child.stdout.fileno(), 2**16)):
                return _wait(child, left), printable((line or last_line).decode("utf-8", "replace")[-400:])
            size += len(block)
            *lines, line = (line + block).split(b"\n")
            steps = [whole for whole in lines if whole.startswith(STEP.encode())]
            last_line = next((whole for whole in reversed(lines) if whole not in steps), last_line)
            for step in steps:
                notify(printable(step.decode("utf-8", "replace").removeprefix(STEP)))
    return None, ""


def _wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:  # it closed its output but still runs
        return None


def _ended(job: Job, status: int | None, last_line: str) -> str:
    limits = job.limits
    if status is None or status == -signal.SIGXCPU:
        return (
            f"{job.graph.name}: reading and trying it took more than {limits.seconds:g} s; if you trust the file, "
            "allow more with --timeout-s"
        )
    if status < 0:
        how = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        return (
            f"{job.graph.name}: the process that read it died ({how}); the file is damaged or hostile, or needs more "
            f"than {limits.memory_bytes / 2**30:g} GiB (--memory-gib)"
        )
    return (
        f"{job.graph.name}: the process that read it ended with status {status}{': ' if last_line else ''}{last_line}"
    )
