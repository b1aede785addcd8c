"""The time limit of a shutdown: a process that exceeds it logs what it waits for, and exits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PREAMBLE = """
import asyncio, ctypes, threading
from contextlib import asynccontextmanager
from service.core.settings import Settings
from service.lifecycle.end_limit import end_within
from service.telemetry.logs import configure_logs
configure_logs(Settings())
"""


def ended(script: str) -> tuple[int, str]:
    """Run a script; returns its exit status and its standard error."""
    command = [sys.executable, "-c", PREAMBLE + script]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=False)
    return done.returncode, done.stderr


def test_a_task_that_never_ends_is_named_with_its_innermost_wait() -> None:
    status, written = ended("""
from service.lifecycle import end_limit
end_limit._LAST_RESORT_S = 60.0  # else a pause of 1 s would end the process before the log is written

async def hang():
    asyncio.get_running_loop().call_soon(end_within, 0.2)  # once it waits
    await asyncio.Event().wait()

@asynccontextmanager
async def opened():
    yield
    await hang()

async def close():
    async with opened():
        pass

asyncio.run(close())
""")
    assert status == 1
    (line,) = [json.loads(one) for one in written.splitlines() if one.startswith("{")]
    assert line["event"] == "the process did not exit in time; forcing it to exit"
    (waits,) = line["tasks_wait_in"]
    names = [step.partition(":")[0] for step in waits.split(" > ")]
    assert names == ["close", "_AsyncGeneratorContextManager.__aexit__", "opened", "hang", "Event.wait"]


def test_a_thread_that_python_waits_for_after_the_loop_is_in_the_stacks() -> None:
    status, written = ended("""
begun = threading.Event()

def never_ends():
    begun.set()
    threading.Event().wait()

async def begin():
    threading.Thread(target=never_ends).start()
    begun.wait()
    end_within(0.2)

asyncio.run(begin())
""")
    assert status == 1
    assert "in never_ends" in written


def test_a_thread_that_holds_the_gil_is_ended_too() -> None:
    status, written = ended("""
def keeps():
    ctypes.PyDLL(None).sleep(600)

async def begin():
    end_within(0.2)
    keeps()

asyncio.run(begin())
""")
    assert status == 1
    assert "in keeps" in written


def test_a_process_that_ends_in_time_ends_with_its_own_status() -> None:
    status, written = ended("""
async def begin():
    end_within(60)

asyncio.run(begin())
raise SystemExit(3)
""")
    assert (status, written) == (3, "")
