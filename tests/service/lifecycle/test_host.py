"""Settings of the process: the number of cores, a short switch interval between threads, reuse of freed memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from service.lifecycle.host import (
    SWITCH_S,
    IdleCores,
    cores_of_container,
    keep_freed_memory,
    shorten_switch_interval,
    usable_cores,
)

PAGES = (1 << 20) // resource.getpagesize()


def test_idle_cores_are_those_without_a_running_task(tmp_path: Path) -> None:
    loadavg = tmp_path / "loadavg"
    loadavg.write_text("8.65 9.82 7.16 6/362 21821\n")
    idle = IdleCores(loadavg, 16)
    assert idle.count() == 10
    loadavg.write_text("8.65 9.82 7.16 99/362 21821\n")
    assert idle.count() == 0


@pytest.mark.parametrize("content", [None, "", "0.1 0.2 0.3", "0.1 0.2 0.3 many/362 1"])
def test_all_cores_are_idle_where_the_system_does_not_count_tasks(tmp_path: Path, content: str | None) -> None:
    loadavg = tmp_path / "loadavg"
    if content is not None:
        loadavg.write_text(content)
    assert IdleCores(loadavg, 16).count() == 16


def test_a_core_that_computes_is_not_idle() -> None:
    assert 0 <= IdleCores().count() < (os.cpu_count() or 1)


def test_cores_are_those_that_this_process_may_use() -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))


def test_a_process_kept_to_one_core_counts_one() -> None:
    core = min(os.sched_getaffinity(0))
    cores = "from service.lifecycle.host import usable_cores; print(usable_cores())"
    code = f"import os; os.sched_setaffinity(0, {{{core}}}); {cores}"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"


def test_without_affinity_all_cores_of_the_machine_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert usable_cores() == 12


def test_a_thread_waits_less_than_a_millisecond_for_the_interpreter() -> None:
    before = sys.getswitchinterval()
    try:
        shorten_switch_interval()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        assert SWITCH_S < 1e-3
    finally:
        sys.setswitchinterval(before)


def faults_of(rounds: int) -> int:
    """Return the minor page faults of `rounds` rounds that allocate and free three arrays of 1 MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        arrays = [np.ones(1 << 20, np.uint8) for _ in range(3)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_arrays_of_pictures_reuse_freed_memory() -> None:
    assert keep_freed_memory()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(faults_of, 5).result()
        assert thread.submit(faults_of, 50).result() < 50 * PAGES / 4


@pytest.mark.parametrize(
    ("text", "cores"),
    [("50000 100000", 0.5), ("max 100000", None), ("99900000 100000", None), ("nonsense", None), (None, None)],
)
def test_a_containers_quota_limits_the_cores(tmp_path: Path, text: str | None, cores: float | None) -> None:
    file = tmp_path / "cpu.max"
    if text is not None:
        file.write_text(f"{text}\n")
    assert cores_of_container(file) == (usable_cores() if cores is None else cores)
