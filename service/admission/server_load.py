"""Load of the whole server as a front end's admission sees it: requests at the other front ends, and the engines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from service.admission.reservation_store import LocalReservationStore, ReservationStore
from service.core.flow import Flow


class ServerLoad(Protocol):
    """Load of a server with several front ends, as one of them sees it."""

    @property
    def in_flight_elsewhere(self) -> int:
        """Requests in flight at the other front ends."""

    @property
    def front_ends(self) -> int:
        """Number of front ends, at least 1."""

    @property
    def engines(self) -> int:
        """Number of engine processes that are ready, at least 1."""

    @property
    def sample_s(self) -> float:
        """Device seconds for each sample in a full batch, measured by the engines for all front ends; 0 if unknown."""

    @property
    def reservation_store(self) -> ReservationStore:
        """The reservations that all front ends share."""

    @property
    def spare_cores(self) -> int:
        """Cores that a request may use besides its own, if every request in flight at any front end uses as many."""

    def samples_ahead(self, flow: Flow) -> float:
        """The samples of all front ends that each engine computes before a new sample of this flow."""

    def publish(self, in_flight: int, large: int) -> None:
        """Publish this front end's numbers of ordinary and of large requests in flight to the others."""


@dataclass(frozen=True, slots=True)
class SingleFrontEndLoad:
    """Load of a server with a single front end, whose admission knows all requests itself."""

    in_flight_elsewhere: int = 0
    front_ends: int = 1
    engines: int = 1
    sample_s: float = 0.0
    spare_cores: int = 0
    reservation_store: ReservationStore = field(default_factory=LocalReservationStore)

    def samples_ahead(self, flow: Flow) -> float:  # noqa: ARG002 -- see `ServerLoad`
        """Return 0: no other front end sends any."""
        return 0.0

    def publish(self, in_flight: int, large: int) -> None:
        """Do nothing: there is no other front end."""
