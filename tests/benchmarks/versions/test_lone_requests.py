"""A lone request's time is counted without the engine's part."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from benchmarks.harness.raw_http import Client, Reply
from benchmarks.versions.lone_requests import engine_s, send_block


class Answering:
    """A client whose requests take no time, but report half a millisecond in the engine."""

    async def send(self, _: bytes) -> Reply:
        await asyncio.sleep(0)
        return Reply(200, {"server-timing": "decode;dur=1.000, infer;dur=0.500"}, b"")


async def test_each_request_of_a_block_is_counted_without_its_engine() -> None:
    taken = await send_block(cast("Client", Answering()), b"", 3)
    assert len(taken) == 3
    assert min(taken) >= -0.0005, "seconds, and not milliseconds"


@pytest.mark.parametrize("reply", [Reply(503, {}, b"no"), Reply(200, {}, b"")])
def test_a_reply_without_a_picture_or_the_engines_time_ends_the_measurement(reply: Reply) -> None:
    with pytest.raises(SystemExit, match=f"failed: {reply.status}"):
        engine_s(reply)
