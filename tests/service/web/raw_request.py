"""A request as bytes, for tests that send or read it by their own socket."""

from __future__ import annotations

import httpx


def head_of(request: httpx.Request) -> bytes:
    """Return the request line and the header fields, with the empty line after them."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{request.method} {request.url.path} HTTP/1.1\r\n{fields}\r\n".encode()
