"""The load of the whole server, as a front end's admission sees it through the status board."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from service.admission.request_order import requests_ahead
from service.admission.reservation_store import ReservationStore
from service.core.flow import Flow
from service.processes.shared.flow_counts import hashed
from service.processes.shared.status_board import StatusBoard


@dataclass(frozen=True, slots=True)
class StatusBoardLoad:
    """Load of all front ends, read from the status board; see `ServerLoad`."""

    board: StatusBoard
    index: int
    reservation_store: ReservationStore
    cores_for_pictures: int = 0
    idle_cores: Callable[[], int] = lambda: sys.maxsize
    """Returns the number of idle cores of the host."""

    @property
    def in_flight_elsewhere(self) -> int:
        return self.board.in_flight_elsewhere(self.index)

    @property
    def front_ends(self) -> int:
        return self.board.front_ends

    @property
    def engines(self) -> int:
        return max(1, self.board.ready_engines)

    @property
    def sample_s(self) -> float:
        return self.board.sample_s

    @property
    def spare_cores(self) -> int:
        share = self.cores_for_pictures // max(1, self.board.computing) - 1
        return min(share, self.idle_cores()) if share > 0 else 0

    def samples_ahead(self, flow: Flow) -> float:
        return requests_ahead(hashed(flow), self.board.samples_of_flows()) / self.engines

    def publish(self, in_flight: int, large: int) -> None:
        row = self.board.front_end(self.index)
        row.in_flight, row.large_in_flight = in_flight, large
