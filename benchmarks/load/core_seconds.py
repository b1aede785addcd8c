"""Measures which processes of a server use the cores under load."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

_INTERVAL_S = 0.2

Snapshot = Counter[str]
"""CPU seconds so far by kind of process; `machine`: all work on the cores that this process may use."""


def snapshot(server: int, engine_processes: int, front_ends: int) -> Snapshot:
    """Return the CPU seconds by process kind of a server, by its process id."""
    parent = psutil.Process(server)
    seconds: Snapshot = Counter()
    if not front_ends:
        seconds["server"] = sum(parent.cpu_times()[:2])
    kinds = ["engine"] * engine_processes + ["front_ends"] * front_ends
    children = sorted(parent.children(), key=lambda child: child.pid)  # engine processes are started first
    for kind, child in zip(kinds, children, strict=False):
        seconds[kind] += sum(child.cpu_times()[:2])  # type: ignore[assignment]
    usable = os.sched_getaffinity(0)
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        if core in usable:
            seconds["machine"] += sum(times) - times.idle - times.iowait - times.guest - times.guest_nice  # type: ignore[assignment]
    return seconds


@dataclass
class Sampler:
    """Takes snapshots in a thread while the block runs."""

    take: Callable[[], Snapshot]
    _taken: list[tuple[float, Snapshot]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            with suppress(psutil.Error):  # the process may have ended just now
                self._taken.append((time.monotonic(), self.take()))

    def cores(self, last_s: float) -> dict[str, float]:
        """Return the mean number of busy cores, by kind, in the last `last_s` seconds; clients start before."""
        if len(self._taken) < 2:
            return {}
        end, after = self._taken[-1]
        begin, before = next(one for one in self._taken if one[0] >= end - last_s or one is self._taken[-2])
        return {kind: (value - before[kind]) / (end - begin) for kind, value in after.items()}
