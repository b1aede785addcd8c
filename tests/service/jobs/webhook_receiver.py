"""A receiver on loopback, and jobs whose end is told to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

KEY = bytes(range(32))


@dataclass
class Receiver:
    """Answers with the next of `statuses`, then with 204."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], str]] = field(default_factory=list)
    before_answering: Callable[[], object] = lambda: None

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.text()))
        self.before_answering()
        status = self.statuses.pop(0) if self.statuses else 204
        return web.Response(status=status, headers={"Location": self.url} if 300 <= status < 400 else {})
