"""Image calls begin a few at a time, so that the server sees which clients have left before it works for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service.core.errors import Cancelled
from service.imaging.pool.loop_shares import LoopShares
from service.web.middleware.direct_routing import DirectRouting

AT_A_TIME = 2


class Calls:
    """An application with one image call, and the calls that were begun, by their connection."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.service = SimpleNamespace(starts=LoopShares(AT_A_TIME))
        self.app = DirectRouting(self._other, [APIRoute("/v1/inpaint", self._inpaint, methods=["POST"])])

    async def ask(self, number: int, gone: asyncio.Future[None]) -> None:
        state = {"service": self.service, "gone": gone, "number": number}
        scope = {"type": "http", "method": "POST", "path": "/v1/inpaint", "headers": [], "state": state}
        await self.app(scope, self._receive, self._send)

    async def _inpaint(self, request: Request) -> Response:
        self.begun.append(request.scope["state"]["number"])
        return Response()

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("this is an image call")

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Drop the reply."""


async def test_each_iteration_of_the_loop_begins_a_few_in_the_order_they_came() -> None:
    calls, gone = Calls(), asyncio.get_running_loop().create_future()
    tasks = [asyncio.create_task(calls.ask(number, gone)) for number in range(7)]
    before = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        assert len(calls.begun) - before <= AT_A_TIME
        before = len(calls.begun)
    assert calls.begun == list(range(7))


async def test_a_call_whose_client_left_while_it_waited_for_its_turn_is_not_begun() -> None:
    calls, loop = Calls(), asyncio.get_running_loop()
    clients: list[asyncio.Future[None]] = [loop.create_future() for _ in range(6)]
    tasks = [asyncio.create_task(calls.ask(number, gone)) for number, gone in enumerate(clients)]
    await asyncio.sleep(0)
    for gone in clients[:-1]:
        gone.set_result(None)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert calls.begun == [0, 1, 5]
    assert [type(end) for end in ends[2:5]] == [Cancelled] * 3


async def test_the_wait_of_the_newest_call_is_known_to_whom_it_concerns() -> None:
    calls, gone = Calls(), asyncio.get_running_loop().create_future()
    await calls.ask(0, gone)
    assert calls.service.starts.waited_s == 0
    await asyncio.gather(*(calls.ask(number, gone) for number in range(3)))
    assert pytest.approx(0, abs=1) == calls.service.starts.waited_s > 0
