"""IOPaint's own page from its wheel, at the root of an origin, with `/api/v1` forwarded to a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx


class _Handler(SimpleHTTPRequestHandler):
    """Serves the page's files; forwards and records the API's requests."""

    def __init__(self, *arguments: Any, api: str, calls: list[tuple[str, int]], **options: Any) -> None:
        self._api, self._calls = api, calls
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        """Serve a file of the wheel, or forward to the server."""
        if self.path.startswith("/api/"):
            self._forward()
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """Forward to the server."""
        self._forward()

    def log_message(self, *_: Any) -> None:
        """Discard the server's log."""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {"Content-Type": self.headers.get("Content-Type") or "application/octet-stream"}
        reply = httpx.request(self.command, f"{self._api}{self.path}", content=body, headers=kept, timeout=120)
        self._calls.append((self.path, reply.status_code))
        self.send_response(reply.status_code)
        for name in ("Content-Type", "X-Seed"):
            if name in reply.headers:
                self.send_header(name, reply.headers[name])
        self.send_header("Content-Length", str(len(reply.content)))
        self.end_headers()
        self.wfile.write(reply.content)


@contextmanager
def served_page(folder: Path, api: str) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Serve the page until the block ends; yields its URL and a list of path and status of each call to the API."""
    calls: list[tuple[str, int]] = []
    handler = partial(_Handler, directory=str(folder), api=api, calls=calls)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", calls
        finally:
            server.shutdown()
            thread.join()
