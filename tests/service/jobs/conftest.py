"""A receiver of webhooks on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.serving.backing.webhook_receiver import Receiver, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        yield one
