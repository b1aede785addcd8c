"""The page behind a proxy that gives the server a path of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.browser.conftest import Serve, Tab
from tests.browser.desk import PICTURES

PREFIX = "/behind"
PASSED_ON = ("Content-Type", "Content-Security-Policy", "ETag", "X-Seed")


@pytest.fixture
def behind(url: str) -> Iterator[str]:
    """Where a proxy answers for the server under `PREFIX`, and nothing elsewhere."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: self.headers[name] for name in ("Accept", "Content-Type") if name in self.headers}
            address = url.rstrip("/") + self.path.removeprefix(PREFIX)
            reply = httpx.request(self.command, address, content=body, headers=headers, timeout=60)
            self.send_response(reply.status_code)
            for name in PASSED_ON:
                if name in reply.headers:
                    self.send_header(name, reply.headers[name])
            self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever).start()
    yield f"http://127.0.0.1:{server.server_port}{PREFIX}/"
    server.shutdown()


def test_it_loads_fills_and_saves_behind_a_prefix(tab: Tab, behind: str) -> None:
    desk = tab(behind).open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.fill()
    assert desk.saved().size == (256, 341)
    desk.page.click("#code")
    assert f"{behind}v1/inpaint" in desk.page.inner_text("#code-curl")


def test_the_page_works_over_plain_http_under_a_name(serve: Serve, tab: Tab) -> None:
    """Browsers give such a page no secure context: parts of `crypto` are missing there."""
    served = serve(public_host="images.example")
    desk = tab(served.url.replace("127.0.0.1", "images.example") + "/")
    assert desk.page.evaluate("isSecureContext") is False
    desk.open(PICTURES / "dress.jpg")
