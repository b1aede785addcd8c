"""A real server on a free port, in a thread of the test's own process, with models that the fake engine runs.

For tests that start, signal or kill a server process see tests/serving/served_process.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from engines.base import Engine
from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.core.settings import Settings
from tests.serving.waiting import wait_until

if TYPE_CHECKING:  # spares unit tests the import of the whole server
    from service.app import Service
    from service.web.connection.limited_http import ConnectionLimits
    from service.web.server import DrainingServer


@dataclass
class Running:
    """A running server."""

    url: str
    service: Service
    server: DrainingServer
    thread: threading.Thread
    engines: list[FakeEngine]

    @property
    def grpc_address(self) -> str:
        """Host and port of the gRPC server, if `grpc_port` is set."""
        return f"127.0.0.1:{self.service.settings.grpc_port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, **options)

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(base_url=self.url, timeout=60.0, limits=limits, **options)

    @property
    def executed(self) -> int:
        """The number of samples that the engines computed, including the warm-up."""
        return sum(engine.samples for engine in self.engines)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive(), "the server did not stop"


Serve = Callable[..., Running]


@contextmanager
def serving(
    folder: Path,
    fake: Callable[[Manifest], FakeEngine] = FakeEngine,
    *,
    wait: bool = True,
    limits: ConnectionLimits | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Run a server on a free port until the block ends.

    Args:
        folder: folder of its results and caches.
        fake: creates the engine of a manifest.
        wait: whether to wait until its models are loaded.
        limits: limits of its connections; by default the server's own.
        settings: settings that replace the tests' defaults; `models_dir` is required.
    """
    from service.batching.local_backend import open_local_backend  # noqa: PLC0415 -- see above
    from service.compat.assembly import foreign_apis, grpc_server_opener  # noqa: PLC0415
    from service.web.server import DrainingServer  # noqa: PLC0415

    chosen = Settings.model_validate(
        {
            "port": 0,
            "results_dir": folder / "results",
            "engine_cache_dir": folder / "cache",
            "model_poll_s": 0.05,
            "codec_threads": 2,
            "apis": "",
            **settings,
        }
    )
    engines: list[FakeEngine] = []

    def open_model(_directory: Path, manifest: Manifest) -> Engine:
        engines.append(fake(manifest))
        return engines[-1]

    opened, apis = partial(open_local_backend, open_model=open_model), foreign_apis(chosen.api_names)
    further = {"limits": limits} if limits else {}
    server = DrainingServer(chosen, opened, apis, extra_server=grpc_server_opener(chosen), **further)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        assert server.app.service is not None
        running = Running(f"http://127.0.0.1:{port}", server.app.service, server, thread, engines)
        if wait:
            wait_until(lambda: not running.service.unready_reasons())
        yield running
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)
