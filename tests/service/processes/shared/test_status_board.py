"""The status board: each process writes its own row and reads the others'."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from service.processes.shared.status_board import RowCounts, StatusBoard, make_board

PLACES = RowCounts(front_ends=3, engines=2)


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = make_board(PLACES)
    yield descriptor
    os.close(descriptor)


def test_what_one_process_writes_the_others_read(descriptor: int) -> None:
    mine, theirs = StatusBoard(descriptor, PLACES), StatusBoard(descriptor, PLACES)
    mine.front_end(1).in_flight = 7
    mine.engine(0).load = 5
    mine.engine(0).ready = True
    mine.engine(1).heartbeat_at = 12.5
    assert theirs.front_end(1).in_flight == 7
    assert theirs.engine(0).load == 5
    assert theirs.engine(1).heartbeat_at == 12.5
    assert theirs.ready_engines == 1


def test_a_front_end_reads_what_an_engine_process_loads(descriptor: int) -> None:
    mine, theirs = StatusBoard(descriptor, PLACES), StatusBoard(descriptor, PLACES)
    assert theirs.loading == ""
    mine.engine(1).loading = "photos/5 (2 of 4), 40 %"
    assert (theirs.loading, theirs.ready_engines) == ("photos/5 (2 of 4), 40 %", 0)
    mine.engine(1).loading = "x"
    assert theirs.loading == "x"
    mine.engine(1).loading = "é" * 1000
    assert theirs.loading == "é" * 128
    mine.engine(1).clear_row()
    assert theirs.loading == ""


def test_a_front_end_counts_what_is_inside_at_the_others(descriptor: int) -> None:
    board = StatusBoard(descriptor, PLACES)
    for index, in_flight in enumerate((1, 20, 300)):
        board.front_end(index).in_flight = in_flight
    board.engine(0).load = 4000
    assert [board.in_flight_elsewhere(index) for index in range(3)] == [320, 301, 21]


def test_a_front_end_counts_all_requests_that_take_cores_with_its_own_and_the_large_ones(descriptor: int) -> None:
    board = StatusBoard(descriptor, PLACES)
    for index, in_flight in enumerate((1, 20, 300)):
        board.front_end(index).in_flight = in_flight
    board.front_end(2).large_in_flight = 5000
    board.engine(0).load = 40_000
    assert board.computing == 5321
    assert board.in_flight_elsewhere(0) == 320
    board.front_end(2).clear_row()
    assert board.computing == 21


def test_a_row_that_is_cleared_counts_no_more(descriptor: int) -> None:
    board = StatusBoard(descriptor, PLACES)
    board.front_end(0).in_flight = 9
    board.front_end(2).in_flight = 1
    board.front_end(0).clear_row()
    assert board.in_flight_elsewhere(1) == 1


def test_a_process_learns_whether_its_row_was_used_before(descriptor: int) -> None:
    board = StatusBoard(descriptor, PLACES)
    assert not board.engine(0).claim_row(12.5)
    board.engine(0).clear_row()
    assert board.engine(0).claim_row(13.0)
    assert board.engine(0).heartbeat_at == 13.0
    assert not board.engine(1).claim_row(13.0)
