"""uvicorn with an HTTP protocol and an app of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from tests.serving.waiting import wait_until


@contextmanager
def serving(protocol: Callable[..., asyncio.Protocol], app: ASGIApp) -> Iterator[uvicorn.Server]:
    """Serve on a free port until the block ends."""
    config = uvicorn.Config(
        app,
        port=0,
        http=protocol,  # type: ignore[arg-type] # uvicorn calls it, no more
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield server
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)
