"""A server's fill comes back unchanged; refusals are reported with the server's reason."""

from __future__ import annotations

import io
import json
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from PIL import Image

from training.errors import ServerRefused
from training.evaluate.cases import Case
from training.evaluate.served import ServedPainter


class _Inverting(BaseHTTPRequestHandler):
    """A server that inverts the masked pixels, and knows one model."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = BytesParser(policy=HTTP).parsebytes(
            b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + body
        )
        parts = {
            part.get_param("name", header="content-disposition"): part.get_content() for part in message.iter_parts()
        }
        if parts["model"] != "photos/5":
            self._reply(404, json.dumps({"detail": "no such model; there is photos/5"}).encode())
            return
        image, mask = (np.asarray(Image.open(io.BytesIO(parts[name]))) for name in ("image", "mask"))
        filled = io.BytesIO()
        Image.fromarray(np.where(mask[..., None] >= 128, 255 - image, image)).save(filled, "PNG")
        self._reply(200, filled.getvalue())

    def _reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), _Inverting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def case():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    hole = np.zeros((20, 30), np.bool_)
    hole[5:9, 3:20] = True
    return Case("x", pixels, pixels, hole, "all")


def test_the_servers_fill_comes_back_to_the_bit(address, case):
    found = ServedPainter(address, "photos/5").paint(case)
    np.testing.assert_array_equal(found, np.where(case.hole[..., None], 255 - case.source, case.source))


def test_a_refusal_is_reported_with_the_servers_reason(address, case):
    with pytest.raises(ServerRefused, match=r"answered 404: no such model; there is photos/5"):
        ServedPainter(address, "photos/4").paint(case)


@pytest.mark.parametrize("wrong", ["http://127.0.0.1:1", "file:///etc"])
def test_an_address_without_a_server_is_named(wrong, case):
    with pytest.raises(ServerRefused, match=wrong):
        ServedPainter(wrong, "photos/5").paint(case)
