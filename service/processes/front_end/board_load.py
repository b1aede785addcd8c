"""The load of the other front ends, as a front end's admission sees it."""

from __future__ import annotations

from dataclasses import dataclass

from service.admission.reservation_store import ReservationStore
from service.processes.shared.status_board import StatusBoard


@dataclass(frozen=True, slots=True)
class StatusBoardLoad:
    """Load of all front ends, read from the status board; see `ServerLoad`."""

    board: StatusBoard
    index: int
    reservation_store: ReservationStore

    @property
    def in_flight_elsewhere(self) -> int:
        return self.board.in_flight_elsewhere(self.index)

    @property
    def engines(self) -> int:
        return max(1, self.board.ready_engines)

    def publish(self, in_flight: int) -> None:
        self.board.front_end(self.index).in_flight = in_flight
