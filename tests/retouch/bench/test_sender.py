from __future__ import annotations

import asyncio
import socket

import pytest

from retouch.bench.load import Payload, ServerReply
from retouch.bench.sender import encode, open_sender
from retouch.filling.filler import FillFailed


async def test_a_picture_is_returned_with_the_servers_timings(contract) -> None:
    payload = encode("/v1/inpaint", {"image": b"photo", "mask": b"hole"}, {"seed": "1"})
    async with open_sender(f"{contract.url}/") as sender:
        reply = await sender.send(payload)
        again = await sender.send(payload)
    assert reply == again == ServerReply(200, "", "", "decode;dur=1.5, infer;dur=20", "2", "photos/1", "fake")
    assert contract.asked == [{"task": "inpaint", "image": b"photo", "mask": b"hole", "seed": "1"}] * 2


async def test_a_problem_is_an_answer_with_its_code(contract) -> None:
    contract.busy = 1
    payload = encode("/v1/translate", {"image": b"photo"}, {})
    async with open_sender(contract.url) as sender:
        assert await sender.send(payload) == ServerReply(503, "overloaded", "the server is full")


async def test_an_error_that_is_no_problem_is_an_answer_with_its_text(contract) -> None:
    async with open_sender(contract.url) as sender:
        assert await sender.send(encode("/v1/translate", {"image": b"plain"}, {})) == ServerReply(
            502, "", "out of order"
        )


async def test_no_server_is_an_answer_without_status() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        async with open_sender(f"http://127.0.0.1:{taken.getsockname()[1]}") as sender:
            reply = await sender.send(Payload("/v1/inpaint", "text/plain", b""))
    assert (reply.status, reply.code) == (0, "ClientConnectorError")
    assert "(Connection refused)" in reply.detail


async def test_an_unknown_host_and_a_wrong_scheme_give_the_reason_for_no_reply(contract) -> None:
    for url, why in (("http://user:secret@no.invalid:9", "not known"), (contract.url.replace("http", "https"), "SSL")):
        async with open_sender(url) as sender:
            reply = await sender.send(Payload("/v1/inpaint", "text/plain", b""))
        assert reply.detail.startswith(f"no server answers at {url.replace('user:secret@', '')} (")
        assert why in reply.detail


async def test_there_is_no_limit_on_connections(contract) -> None:
    contract.gather = 200
    async with open_sender(contract.url) as sender:
        payload = encode("/v1/translate", {"image": b"x"}, {})
        answers = await asyncio.gather(*(sender.send(payload) for _ in range(200)))
    assert {reply.status for reply in answers} == {200}
    assert contract.most_inside == 200


async def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(FillFailed, match="http://HOST:PORT"):
        async with open_sender("localhost:8000"):
            pass
