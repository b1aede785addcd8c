"""Profiles a server's processes at full speed: the CPU time of every thread, and stacks recorded by py-spy."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness.raw_load import Target, drive

_WARM_S = 1.5
"""Seconds in which clients start."""

_MODES: dict[str, list[str]] = {"running": [], "gil": ["--gil"], "native": ["--native"]}
_LIMIT_S = 45.0
"""Maximum seconds for py-spy to read the symbols of large libraries and to sample."""


@dataclass(frozen=True)
class _Spent:
    """A thread's CPU seconds, and the number of its voluntary and involuntary context switches."""

    name: str
    user_s: float
    system_s: float
    gave_up: int
    was_taken: int


def processes_of(server: int, workers: int) -> dict[str, int]:
    """Return the process ids of the engine process and of one front end; a server of one process is both."""
    if not workers:
        return {"server": server}
    children = sorted(child.pid for child in psutil.Process(server).children())  # engine processes are started first
    return {"engine": children[0], "front_end": children[1]}


def thread_times(processes: dict[str, int], target: Target, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """Return the CPU time of each process's threads under that load, the busiest first, in ms per second."""
    loading = threading.Thread(target=drive, args=(target, _WARM_S + seconds + 0.5), daemon=True)
    loading.start()
    time.sleep(_WARM_S)
    started, before = time.monotonic(), {name: _threads(process) for name, process in processes.items()}
    time.sleep(seconds)
    spent, after = time.monotonic() - started, {name: _threads(process) for name, process in processes.items()}
    loading.join()
    return {name: _differences(before[name], after[name], spent) for name in processes}


def record_stacks(processes: dict[str, int], target: Target, seconds: float, folder: Path) -> dict[str, str]:
    """Write py-spy's stacks of each process under that load to PROCESS-MODE.txt; returns the last line of each run.

    Modes: running threads, threads that hold the GIL, and running threads with their native frames.
    """
    program = shutil.which("py-spy")
    if program is None:
        return {"py-spy": "is not on PATH"}
    folder.mkdir(parents=True, exist_ok=True)
    last_lines = {}
    for mode, flags in _MODES.items():
        running = {}
        for name, process in processes.items():
            command = [program, "record", "-d", str(round(seconds)), "-r", "100", "-f", "raw", "--threads", *flags]
            command += ["-o", str(folder / f"{name}-{mode}.txt"), "-p", str(process)]
            log = (folder / f"{name}-{mode}.log").open("wb")
            running[name] = (subprocess.Popen(command, stdout=log, stderr=log), log)
        until = time.monotonic() + _LIMIT_S
        while any(one.poll() is None for one, _ in running.values()) and time.monotonic() < until:
            drive(target, 2.0)
        for name, (one, log) in running.items():
            code = _ended(one)
            log.close()
            last = (folder / f"{name}-{mode}.log").read_text(errors="replace").strip().splitlines()[-1:]
            last_lines[f"{name}-{mode}"] = f"{code}: {' '.join(last)[:200]}"
    return last_lines


def _ended(recording: subprocess.Popen[bytes]) -> int:
    """Interrupt a recording that takes too long, so that py-spy writes its samples; returns the exit status."""
    if recording.poll() is None:
        recording.send_signal(signal.SIGINT)
    try:
        return recording.wait(15)
    except subprocess.TimeoutExpired:
        recording.kill()
        return recording.wait()


def _threads(process: int) -> dict[int, _Spent]:
    found = {}
    for thread in psutil.Process(process).threads():
        folder = Path(f"/proc/{process}/task/{thread.id}")
        with suppress(OSError, StopIteration, ValueError):  # the thread ended just now
            status = (folder / "status").read_text().splitlines()
            switches = [next(line for line in status if line.startswith(kind)) for kind in ("vol", "nonvol")]
            gave_up, was_taken = (int(line.split()[1]) for line in switches)
            name = (folder / "comm").read_text().strip()
            found[thread.id] = _Spent(name, thread.user_time, thread.system_time, gave_up, was_taken)
    return found


def _differences(before: dict[int, _Spent], after: dict[int, _Spent], seconds: float) -> list[dict[str, Any]]:
    nothing = _Spent("", 0.0, 0.0, 0, 0)
    rows: list[dict[str, Any]] = []
    for thread, spent in after.items():
        past = before.get(thread, nothing)
        row = {
            "thread": thread,
            "name": spent.name,
            "user_ms": round((spent.user_s - past.user_s) / seconds * 1e3, 1),
            "system_ms": round((spent.system_s - past.system_s) / seconds * 1e3, 1),
            "gave_up": round((spent.gave_up - past.gave_up) / seconds),
            "was_taken": round((spent.was_taken - past.was_taken) / seconds),
        }
        rows.append(row)
    return sorted(rows, key=lambda row: -(row["user_ms"] + row["system_ms"]))[:24]
