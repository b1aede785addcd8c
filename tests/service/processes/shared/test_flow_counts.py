"""Counts of samples by flow in shared memory: one process writes, others read."""

from __future__ import annotations

import mmap
import multiprocessing
from collections import Counter
from multiprocessing.synchronize import Event

import pytest

from service.core.flow import Flow
from service.processes.shared.flow_counts import CELLS, FlowCounts, hashed

BUSY, QUIET, URGENT = Flow("key:1234"), Flow("203.0.113.7"), Flow("key:1234", 9)


@pytest.fixture
def cells() -> memoryview[float]:
    return memoryview(bytearray(CELLS * 8)).cast("d")


def read(cells: memoryview[float]) -> Counter[Flow]:
    total: Counter[Flow] = Counter()
    FlowCounts(cells).add_to(total)
    return total


def test_what_is_counted_is_read_by_client_and_priority(cells: memoryview[float]) -> None:
    counts = FlowCounts(cells)
    for flow, count in ((BUSY, 40), (QUIET, 2), (URGENT, 1), (BUSY, -1), (QUIET, -2)):
        counts.add(flow, count)
    assert read(cells) == {hashed(BUSY): 39, hashed(URGENT): 1}
    FlowCounts(cells).add_to(twice := read(cells))
    assert twice == {hashed(BUSY): 78, hashed(URGENT): 2}
    counts.clear()
    assert not read(cells)


def test_a_flow_keeps_its_priority_and_clients_are_distinguished() -> None:
    assert hashed(URGENT).weight == URGENT.weight
    assert len({hashed(Flow(f"key:{number}")) for number in range(100)}) > 75


def count_until(cells: memoryview[float], told: Event) -> None:
    """Count a sample in and out repeatedly, as an engine process does."""
    counts = FlowCounts(cells)
    while not told.is_set():
        for _ in range(100):
            counts.add(BUSY, 1)
            counts.add(BUSY, -1)


def test_counts_can_be_read_while_another_process_changes_them() -> None:
    cells, processes = memoryview(mmap.mmap(-1, CELLS * 8)).cast("d"), multiprocessing.get_context("fork")
    told = processes.Event()
    engine = processes.Process(target=count_until, args=(cells, told), daemon=True)
    engine.start()
    try:
        seen = {read(cells)[hashed(BUSY)] for _ in range(10_000)}
    finally:
        told.set()
        engine.join()
    assert seen <= {0, 1}
