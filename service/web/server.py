"""Runs the service under uvicorn with a graceful shutdown: SIGTERM, SIGINT and SIGHUP make it drain, flush and exit."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from types import FrameType

import structlog
import uvicorn
from prometheus_client import disable_created_metrics

from service.app import Service
from service.batching.backend import OpenBackend
from service.batching.local_backend import open_local_backend
from service.core.addresses import with_port
from service.core.settings import Settings, SettingsInvalid
from service.lifecycle.drain import EXIT_DEVICE_LOST
from service.lifecycle.end_limit import END_WITHIN_S, end_within
from service.lifecycle.end_requests import EndRequests, handling_signals
from service.preflight import check_ports, run_preflight
from service.telemetry.metrics import Metrics
from service.telemetry.metrics_port import serve_metrics
from service.web.application import App
from service.web.connection.limited_http import ConnectionLimits, LimitedHttp, UnreadResponses
from service.web.foreign_api import ForeignApi

log = structlog.get_logger(__name__)

OpenExtraServer = Callable[[Service], AbstractAsyncContextManager[None]]
"""Opens another server of the same service, which runs while this one does."""
_BACKLOG = 4096
_CONNECTION_LIMITS = ConnectionLimits()
_REPLY_GRACE_S = 2
"""Seconds to send replies after the drain was cut short."""
_KEEP_ALIVE_S = 75
"""Longer than common proxies' timeouts (nginx: 60 s), so that the proxy closes idle connections, not the server."""


def run(
    settings: Settings,
    open_backend: OpenBackend = open_local_backend,
    listener: socket.socket | None = None,
    apis: Sequence[ForeignApi] = (),
    extra_server: OpenExtraServer | None = None,
    end_requests: EndRequests | None = None,
) -> int:
    """Serve until SIGTERM, SIGINT, SIGHUP or the loss of the device.

    Args:
        settings: the server's settings.
        open_backend: opens the backend; by default one in this process.
        listener: a bound socket; by default one is made for the settings' address.
        apis: foreign APIs to serve besides the server's own.
        extra_server: opens a server of another protocol that runs with this one.
        end_requests: counts the requests to end; by default, every signal but SIGHUP can be one.

    Returns:
        The exit status: 0 after a clean drain, EXIT_DEVICE_LOST if the process has lost its GPU and should be
        restarted, else 1.

    Raises:
        SettingsInvalid: raised by `check_ports` and `run_preflight`.
    """
    if listener is None:
        check_ports(settings)
    run_preflight(settings)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    server = DrainingServer(settings, open_backend, apis, extra_server=extra_server, end_requests=end_requests)
    server.limit_end = end_within
    server.run(None if listener is None else [listener])
    service = server.app.service
    if service is not None and service.backend.lost.is_set():
        return EXIT_DEVICE_LOST
    clean = service is not None and service.drain.clean
    return 0 if server.started and clean and not (server.force_exit or server.failed) else 1


class DrainingServer(uvicorn.Server):
    """uvicorn server that drains on the first signal: /readyz answers 503, new work is refused, the rest is finished.

    Work is still accepted for `drain_delay_s` after /readyz has changed; only then does `drain_timeout_s` begin.

    A second request to end (EndRequests) ends the server at once; SIGHUP only begins a drain.
    """

    def __init__(
        self,
        settings: Settings,
        open_backend: OpenBackend = open_local_backend,
        apis: Sequence[ForeignApi] = (),
        limits: ConnectionLimits = _CONNECTION_LIMITS,
        extra_server: OpenExtraServer | None = None,
        end_requests: EndRequests | None = None,
    ) -> None:
        self.app = App(settings, open_backend, version("retouch"), apis, opened=self._serve_extra_server)
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signalled = False
        self._end_requests = end_requests or EndRequests()
        self._cut_at_s: float | None = None
        self._unread = UnreadResponses()
        self._open_extra_server, self._extra_servers = extra_server, AsyncExitStack()
        self.limit_end: Callable[[float], None] | None = None
        """Called once with the time limit of the end in seconds; None: no limit."""
        self.failed = False
        """Whether the server beside this one could not be opened."""
        super().__init__(
            uvicorn.Config(
                self.app,
                host=settings.host,
                port=settings.port,
                http=partial(LimitedHttp, limits=limits, unread=self._unread),  # type: ignore[arg-type] # uvicorn calls it, no more
                ws="none",
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=_REPLY_GRACE_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals that uvicorn does not, such as SIGHUP, which would otherwise end the process at once."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
            yield
            return
        with super().capture_signals(), handling_signals(self._end_requests.other_signals, self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- a signal handler's arguments
        """Drain on the first request, exit at once on the second; uvicorn's handler would raise the signal again."""
        service = self.app.service
        self._end_requests.add(sig, time.monotonic())
        is_second = self._end_requests.count > 1
        if service is not None and is_second:
            service.drain.forced = True
        if service is None or self._loop is None or is_second:
            self.should_exit, self.force_exit = True, is_second
            return
        if not self._signalled:
            self._loop.call_soon_threadsafe(self._drain, service, signal.Signals(sig).name)
        self._signalled = True

    def _drain(self, service: Service, name: str) -> None:
        """Begin the drain; on the event loop, as a signal handler may interrupt a holder of the log's lock."""
        log.info("draining", signal=name, in_flight=service.admission.in_flight)
        self._limit_the_end(self._settings.drain_delay_s + self._settings.drain_timeout_s + END_WITHIN_S)
        service.announce_shutdown()
        if self._settings.drain_delay_s and self._loop is not None:
            self._loop.call_later(self._settings.drain_delay_s, service.begin_draining)
        else:
            service.begin_draining()

    def _limit_the_end(self, seconds: float) -> None:
        """Limit how long the end may take, unless a drain has already set a limit."""
        limit, self.limit_end = self.limit_end, None
        if limit is not None:
            limit(seconds)

    async def on_tick(self, counter: int) -> bool:
        """Leave the main loop when all requests in flight are answered and read, or the drain timed out."""
        return await super().on_tick(counter) or self._is_drained()

    def _is_drained(self) -> bool:
        service = self.app.service
        if service is None or not service.admission.draining.is_set():
            return False
        if service.admission.in_flight == 0 and not self._unread.nbytes:
            return True
        waited_s = service.drain.waited_s
        if self._cut_at_s is None and waited_s >= self._settings.drain_timeout_s:
            service.fail_waiting_requests()
            self._cut_at_s = waited_s
        return self._cut_at_s is not None and waited_s >= self._cut_at_s + _REPLY_GRACE_S

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and log the server's URL."""
        self._loop = asyncio.get_running_loop()
        try:
            await super().startup(sockets)
        finally:
            if not self.started:  # the address is not available: uvicorn ends the process
                await self._extra_servers.aclose()
        service = self.app.service
        if service is not None and not self.failed:
            host, port = self._settings.host, self.servers[0].sockets[0].getsockname()[1]
            url = f"http://{with_port(host, port)}"
            grpc = {"grpc": with_port(host, self._settings.grpc_port)} if self._open_extra_server is not None else {}
            log.info("serving", url=url, docs=f"{url}/docs", **grpc)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the servers beside this one, then this one."""
        self._limit_the_end(self._settings.drain_timeout_s + END_WITHIN_S)
        await self._extra_servers.aclose()
        await super().shutdown(sockets)

    async def _serve_extra_server(self, service: Service) -> None:
        """Open the other servers and the metrics port before HTTP listens, so that all answer once /readyz is ready."""
        self._serve_metrics(service.metrics)
        if self.failed or self._open_extra_server is None:
            return
        try:
            await self._extra_servers.enter_async_context(self._open_extra_server(service))
        except SettingsInvalid as error:
            log.error("port not available", reason=str(error))  # noqa: TRY400 -- the reason is enough
            self.should_exit = self.failed = True

    def _serve_metrics(self, metrics: Metrics) -> None:
        if not self._settings.metrics_port or metrics.shared:  # the launcher serves the metrics of all processes
            return
        try:
            serve_metrics(self._settings.host, self._settings.metrics_port, metrics.registry)
        except OSError as error:
            log.error("metrics port not available", port=self._settings.metrics_port, reason=str(error))  # noqa: TRY400 -- the reason is enough
            self.should_exit = self.failed = True
