"""Builds the admission of a server from its settings."""

from __future__ import annotations

from collections.abc import Callable

from service.admission.admission import Admission
from service.admission.retry_after import Reservations
from service.admission.server_load import ServerLoad
from service.admission.service_rate import ServiceRate
from service.core.settings import Settings


def make_admission(
    settings: Settings, server_load: ServerLoad, wait_outside_queue_s: Callable[[], float], clock: Callable[[], float]
) -> Admission:
    """Return the admission.

    Args:
        settings: the server's configuration.
        server_load: the requests and reservations of all front ends.
        wait_outside_queue_s: predicts how long a request waits for codec threads and for the event loop, in seconds.
        clock: monotonic time in seconds.
    """
    return Admission(
        settings.max_queue_size,
        settings.max_uploads,
        wait_outside_queue_s,
        clock,
        ServiceRate(settings.max_batch_size),
        reservations=Reservations(store=server_load.reservation_store),
        max_bodies_bytes=settings.max_bodies_mb * 2**20,
        server_load=server_load,
    )
