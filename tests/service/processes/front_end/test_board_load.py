"""A front end reads from the status board how many cores no request needs."""

from __future__ import annotations

import os

import pytest

from service.processes.front_end.board_load import StatusBoardLoad
from service.processes.shared.status_board import RowCounts, StatusBoard, make_board

PLACES = RowCounts(front_ends=16, engines=1)


@pytest.mark.parametrize(
    ("own", "elsewhere", "large_elsewhere", "spare"),
    [(1, 0, 0, 14), (1, 1, 0, 6), (1, 3, 0, 2), (1, 6, 0, 1), (1, 7, 0, 0), (1, 0, 7, 0), (8, 0, 0, 0), (0, 0, 0, 14)],
)
def test_cores_that_are_not_needed_are_divided_among_the_requests_of_all_front_ends(
    own: int, elsewhere: int, large_elsewhere: int, spare: int
) -> None:
    descriptor = make_board(PLACES)
    board = StatusBoard(descriptor, PLACES)
    first, last = (
        StatusBoardLoad(board, index, board.reservation_store(index), cores_for_pictures=15) for index in (0, 15)
    )
    first.publish(own, 0)
    last.publish(elsewhere, large_elsewhere)
    assert first.spare_cores == last.spare_cores == spare
    os.close(descriptor)


def test_a_core_on_which_another_program_runs_is_not_spare() -> None:
    descriptor = make_board(PLACES)
    board = StatusBoard(descriptor, PLACES)
    for idle in (0, 1, 20):
        load = StatusBoardLoad(board, 0, board.reservation_store(0), 15, lambda idle=idle: idle)  # type: ignore[misc]
        assert load.spare_cores == min(14, idle)
    os.close(descriptor)


def test_a_front_end_without_assigned_cores_has_no_idle_ones() -> None:
    descriptor = make_board(PLACES)
    board = StatusBoard(descriptor, PLACES)
    assert StatusBoardLoad(board, 0, board.reservation_store(0)).spare_cores == 0
    os.close(descriptor)
