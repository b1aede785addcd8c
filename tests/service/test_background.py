"""Work beside the requests: it fails alone, and loudly."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from service.background import running


async def fails() -> None:
    raise OSError("no descriptor left")


async def test_work_that_fails_is_logged_and_takes_nothing_else_along() -> None:
    ended = []

    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("lasts")

    with capture_logs() as lines:
        async with running(fails(), lasts()):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert ended == ["lasts"]
    assert [line["work"] for line in lines] == ["fails"]
