"""A receiver of webhooks on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.serving.backing.webhook_receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    one, app = Receiver(), web.Application()
    app.router.add_post("/hook", one.answer)
    async with TestServer(app) as server:
        one.url = str(server.make_url("/hook"))
        yield one
