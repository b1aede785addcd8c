"""A server on a thread of this process, for measurements of its internals."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from service.web.server import DrainingServer


@contextmanager
def running_on_thread(server: DrainingServer) -> Iterator[int]:
    """Run a server until the block ends, then drain it; the block gets the port that it listens on."""
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join()
