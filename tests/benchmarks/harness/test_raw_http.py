"""The benchmarks' HTTP client: what it says of a connection that ends before the reply is complete."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.harness.raw_http import Client

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"


@pytest.mark.parametrize(
    ("sent", "why"), [(b"", "disconnected"), (WHOLE[:9], "cut off"), (WHOLE[:-1], "cut off"), (WHOLE, "")]
)
def test_a_reply_that_had_begun_was_cut_off(sent: bytes, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.close()

    async def ask() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            client = Client("127.0.0.1", server.sockets[0].getsockname()[1])
            reply = await client.get("/")
            client.close()
            return reply.why

    assert asyncio.run(ask()) == why
