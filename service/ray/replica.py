"""The server's ASGI application in a replica of Ray Serve, which takes the place of uvicorn and signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from service.app import Service
from service.batching.backend import OpenBackend
from service.batching.local_backend import open_local_backend
from service.compat.assembly import foreign_apis
from service.core.settings import Settings
from service.lifecycle.background import wait_for_any
from service.preflight import run_preflight
from service.ray.repeat_header import job_id_of
from service.web.application import App

_LOOK_EVERY_S = 0.05


class DeviceGone(RuntimeError):
    """This process has lost its GPU and must be replaced."""


class Replica:
    """ASGI application of a replica. Ray sends the lifespan once, and cancels the call if the client disconnects.

    Args:
        settings: the server's settings; those of sockets and front ends are not used.
        open_backend: opens the backend; by default one in this process.
        check: checks the settings against this machine.

    Raises:
        SettingsInvalid: results cannot be saved, or the server would be open to anyone by mistake.
        KeysInvalid: the key file cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        open_backend: OpenBackend = open_local_backend,
        check: Callable[[Settings], None] = run_preflight,
    ) -> None:
        check(settings)
        self._settings = settings
        self.app = App(settings, open_backend, version("retouch"), foreign_apis(settings.api_names))
        self._state: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._state = scope["state"]
            await self.app(scope, self._delay_shutdown_until_drained(receive), self._delay_startup_until_loaded(send))
            return
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scope["state"] = {**self._state, "gone": gone, "job_id": job_id_of(scope)}
        work = asyncio.ensure_future(self.app(scope, receive, send))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            gone.set_result(None)
            await work
            raise

    def check_health(self) -> None:
        """Check that this process has its GPU.

        Raises:
            DeviceGone: the GPU is lost.
        """
        service = self.app.service
        if service is not None and service.backend.lost.is_set():
            raise DeviceGone("the GPU is lost to this process")

    def _delay_shutdown_until_drained(self, receive: Receive) -> Receive:
        """Delay the shutdown message until jobs are finished, too; Ray waits only for requests."""

        async def received() -> Message:
            message = await receive()
            service = self.app.service
            if message["type"] == "lifespan.shutdown" and service is not None:
                await self._drain(service)
            return message

        return received

    def _delay_startup_until_loaded(self, send: Send) -> Send:
        """Delay the end of start-up until the models are loaded, because Ray sends requests right after it."""

        async def sent(message: Message) -> None:
            service = self.app.service
            if message["type"] == "lifespan.startup.complete" and service is not None:
                await wait_for_any(service.backend.loaded, service.backend.lost)
            await send(message)

        return sent

    async def _drain(self, service: Service) -> None:
        service.begin_draining()
        while service.admission.in_flight and service.drain.waited_s < self._settings.drain_timeout_s:  # noqa: ASYNC110 -- as uvicorn's tick
            await asyncio.sleep(_LOOK_EVERY_S)
        if service.admission.in_flight:
            service.fail_waiting_requests()
