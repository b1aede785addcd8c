"""The gRPC server: opened beside the HTTP server of the same process, and closed before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter

from grpc import aio

from service.app import Service
from service.core.addresses import with_port
from service.core.settings import Settings, SettingsInvalid
from service.grpc.calls import Calls
from service.grpc.connections import close_connections, unsent_bytes
from service.grpc.message_memory import MessageMemory

_MEMORY_DIVISOR = 4
"""The part of the memory for bodies that arriving messages may take, and unread replies as well: a quarter each."""
_MAX_CALL_S = 600.0
_REPLY_GRACE_S = 2.0
"""Most seconds to send replies after the drain."""
_QUIET_STEPS = 10
"""Steps without a new call before connections are closed; calls that were already sent are refused in this time."""
_STEP_S = 0.025
_LATE_STEP_S = 0.05
"""After a step that took this long, calls may be waiting for the event loop: gRPC delivers them one by one."""
_MAX_SETTLE_S = 2.0
"""Most seconds that these steps take in total, as clients may keep sending."""
_OPTIONS = {
    "grpc.http2.bdp_probe": 0,  # it lets a client send megabytes ahead of our reading, for each of its calls
    "grpc.http2.lookahead_bytes": 65_536,
    "grpc.max_concurrent_streams": 1024,  # per connection; further calls are refused with UNAVAILABLE
    "grpc.max_metadata_size": 16_384,
    "grpc.absolute_max_metadata_size": 16_384,
    "grpc.server_handshake_timeout_ms": 20_000,
    "grpc.keepalive_time_ms": 60_000,  # finds clients that vanished
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.min_ping_interval_without_data_ms": 10_000,  # the shortest interval of clients' pings
    "grpc.max_connection_idle_ms": 600_000,
    "grpc.max_connection_age_ms": 3_600_000,  # then the client reconnects; one that reads no reply loses its calls
}


class _WithoutGoneClients(logging.Filter):
    """Drops grpcio's errors, with tracebacks, about answers whose client left just before they were sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or kind.__name__ != "ExecuteBatchError"


@contextmanager
def _quiet_about_gone_clients() -> Iterator[None]:
    logger, dropping = logging.getLogger("grpc._cython.cygrpc"), _WithoutGoneClients()
    logger.addFilter(dropping)
    try:
        yield
    finally:
        logger.removeFilter(dropping)


@asynccontextmanager
async def open_grpc_server(service: Service) -> AsyncIterator[None]:
    """Serve on `grpc_port` until the block ends; unless the drain is forced, calls then have `_REPLY_GRACE_S` to end.

    Raises:
        SettingsInvalid: the address is not available.
    """
    settings = service.settings
    message_bytes = int(settings.max_body_mb * 2**20)
    memory = MessageMemory(settings.max_bodies_mb * 2**20 / _MEMORY_DIVISOR, message_bytes)
    server = aio.server(options=tuple(_options(settings, message_bytes).items()))
    calls = Calls(service, memory)
    server.add_generic_rpc_handlers((calls,))
    address = with_port(settings.host, settings.grpc_port)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise SettingsInvalid(f"cannot listen on {address} for gRPC; choose another --grpc-port") from error
    with _quiet_about_gone_clients():
        await server.start()
        try:
            yield
        finally:
            drain = service.drain
            await wait_until_quiet(lambda: calls.latest_at, lambda: drain.forced)
            calls.close()
            port = settings.grpc_port
            await wait_until_answered(lambda: calls.unanswered or unsent_bytes(port), lambda: drain.forced)
            # a stopped server would answer calls that come now with CANCELLED, which no client sends again
            close_connections(port)
            await server.stop(None)


async def wait_until_quiet(
    latest_at: Callable[[], float],
    is_forced: Callable[[], bool],
    clock: Callable[[], float] = perf_counter,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return when no call has come for `_QUIET_STEPS` steps, or after `_MAX_SETTLE_S` even if calls still come.

    A step in which the event loop was blocked does not count. A forced end is noticed within a step.

    Args:
        latest_at: returns the time of the latest call, by the clock.
        is_forced: returns whether the end must not wait.
        clock: monotonic seconds.
        sleep: waits for a number of seconds.
    """
    ends_at, quiet_steps = clock() + _MAX_SETTLE_S, 0
    while quiet_steps < _QUIET_STEPS and not is_forced() and (begun := clock()) < ends_at:
        await sleep(_STEP_S)
        quiet = latest_at() <= begun and clock() - begun < _LATE_STEP_S
        quiet_steps = quiet_steps + 1 if quiet else 0


async def wait_until_answered(
    unsent: Callable[[], int],
    is_forced: Callable[[], bool],
    clock: Callable[[], float] = perf_counter,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return when clients have received all answers, or after `_REPLY_GRACE_S`; if forced, within a step.

    `unsent` returns the number of answers that are still to be sent, or then of bytes of them.
    """
    ends_at = clock() + _REPLY_GRACE_S
    while unsent() and not is_forced() and clock() < ends_at:
        await sleep(_STEP_S)


def _options(settings: Settings, message_bytes: int) -> dict[str, int]:
    grace_s = max(_MAX_CALL_S, 2 * settings.request_timeout_s)
    return {
        **_OPTIONS,
        "grpc.max_receive_message_length": message_bytes,
        "grpc.max_send_message_length": -1,
        # several front ends share the port; otherwise a second server would share it unnoticed
        "grpc.so_reuseport": int(settings.workers not in (0, "auto")),
        "grpc.max_connection_age_grace_ms": int(grace_s * 1000),
    }
