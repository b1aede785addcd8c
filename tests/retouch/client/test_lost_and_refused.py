"""Connections that are cut and requests that are refused, on a raw socket, with both clients."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

from retouch.client import AsyncRetouch, Retouch, RetryPolicy
from retouch.client.errors import (
    ClientClosed,
    InvalidOption,
    JobCancelled,
    NoReply,
    Refused,
    ReplyInvalid,
    TooManyRequests,
    Unavailable,
)
from tests.retouch.client.conftest import FILLED, Ask, Scripted, reply

Start = Callable[..., Scripted]


def problem(status: int, code: str, *, retryable: bool, **headers: str) -> bytes:
    body = {"status": status, "code": code, "detail": "for a reason", "retryable": retryable}
    return reply(status, json.dumps(body).encode(), Content_Type="application/problem+json", **headers)


BUSY = problem(503, "overloaded", retryable=True, Retry_After="0", X_Request_ID="refused-1")


def test_a_refused_request_is_repeated_at_retry_after_with_its_id_and_key(ask: Ask, scripted: Start) -> None:
    again = problem(503, "overloaded", retryable=True, Retry_After="0", X_Request_ID="refused-1")
    server = scripted(BUSY, again, FILLED)
    result = ask(server.url, "inpaint", b"image", b"mask")
    assert result.bytes == b"a picture"
    assert server.header("X-Request-ID") == [None, "refused-1", "refused-1"]
    first, *later = server.header("Idempotency-Key")
    assert first
    assert later == [first, first]
    bodies = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
    assert all(b"image" in body and b"mask" in body for body in bodies)


def test_a_server_that_stays_busy_is_given_up_on_after_two_retries(ask: Ask, scripted: Start) -> None:
    server = scripted(BUSY, BUSY, BUSY, FILLED)
    with pytest.raises(Unavailable, match=r"^503 overloaded: for a reason \(3 tries\)$") as refused:
        ask(server.url, "translate", b"image")
    assert (refused.value.code, refused.value.retryable, refused.value.status) == ("overloaded", True, 503)
    assert (refused.value.request_id, refused.value.retry_after_s) == ("refused-1", 0.0)
    assert len(server.requests) == 3


def test_an_error_of_the_callers_own_is_raised_at_once(ask: Ask, scripted: Start) -> None:
    server = scripted(problem(422, "mask_empty", retryable=False), FILLED)
    with pytest.raises(InvalidOption, match="mask_empty") as refused:
        ask(server.url, "inpaint", b"image", b"mask")
    assert not refused.value.retryable
    assert len(server.requests) == 1


def test_a_quota_that_returns_tomorrow_is_not_waited_for(ask: Ask, scripted: Start) -> None:
    server = scripted(problem(429, "quota_exhausted", retryable=True, Retry_After="40000"), FILLED)
    with pytest.raises(TooManyRequests) as refused:
        ask(server.url, "translate", b"image")
    assert refused.value.retry_after_s == 40000
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(b"", id="before the reply"),
        pytest.param(FILLED[:30], id="in its headers"),
        pytest.param(FILLED[:-4], id="in its body"),
    ],
)
def test_a_request_whose_connection_is_cut_is_sent_again_with_its_key(ask: Ask, scripted: Start, cut: bytes) -> None:
    server = scripted(cut, FILLED)
    assert ask(server.url, "inpaint", b"image", b"mask").bytes == b"a picture"
    first, second = server.header("Idempotency-Key")
    assert first == second is not None


def test_a_connection_that_is_always_cut_is_an_error_after_two_retries(ask: Ask, scripted: Start) -> None:
    server = scripted(b"", b"", b"", FILLED)
    with pytest.raises(NoReply, match="cannot be reached") as lost:
        ask(server.url, "translate", b"image")
    assert lost.value.retryable
    assert lost.value.__cause__ is not None
    assert len(server.requests) == 3


def test_a_job_without_a_key_is_not_sent_again_when_its_fate_is_unknown(ask: Ask, scripted: Start) -> None:
    server = scripted(b"", FILLED)
    with pytest.raises(NoReply):
        ask(server.url, "submit", "translate", b"image", idempotency_key=None)
    assert len(server.requests) == 1


async def test_a_poll_without_a_reply_does_not_end_the_wait_of_either_client(scripted: Start) -> None:
    job: dict[str, object] = {"id": "1" * 32, "created": "now", "result_urls": [], "problem": None, "webhook": None}
    ended = reply(200, json.dumps({**job, "status": "cancelled"}).encode())
    server = scripted(b"", ended, b"", ended)
    with Retouch(server.url, retry=0) as client, pytest.raises(JobCancelled):
        client.job("1" * 32).wait(60)
    async with AsyncRetouch(server.url, retry=0) as async_client:
        with pytest.raises(JobCancelled):
            await async_client.job("1" * 32).wait(60)


def test_a_server_that_does_not_answer_in_time_is_not_asked_again(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoReply, match="did not answer in time"):
            ask(url, "models", client={"timeout_s": 0.05})


def test_an_absent_server_is_no_reply(ask: Ask) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        with pytest.raises(NoReply, match="retouch serve"):
            ask(f"http://127.0.0.1:{taken.getsockname()[1]}", "models", client={"retry": RetryPolicy(unexplained=0)})


def test_a_reply_of_another_server_is_recognised(ask: Ask, scripted: Start) -> None:
    page = reply(200, b"<html>", Content_Type="text/html")
    with pytest.raises(ReplyInvalid, match=r"text/html.* Retouch server\?"):
        ask(scripted(page).url, "translate", b"image")
    with pytest.raises(ReplyInvalid):
        ask(scripted(page).url, "models")


def test_a_redirect_is_not_followed_because_the_key_is_for_this_server_alone(ask: Ask, scripted: Start) -> None:
    server = scripted(reply(307, Location="/elsewhere"), FILLED)
    with pytest.raises(Refused, match="307") as refused:
        ask(server.url, "translate", b"image", client={"api_key": "rtk_1"})
    assert refused.value.status == 307
    assert "the server redirects to /elsewhere; redirects are not followed" in str(refused.value)
    assert server.header("X-API-Key") == ["rtk_1"]


def test_a_bad_gateway_is_tried_again_and_quoted_in_the_end(ask: Ask, scripted: Start) -> None:
    server = scripted(*3 * [reply(502, b"out of order")])
    with pytest.raises(Refused, match=r"^502 Said: out of order \(3 tries\)$"):
        ask(server.url, "translate", b"image")


def test_a_call_after_close_says_what_to_do() -> None:
    client = Retouch("http://127.0.0.1:1", retry=0)
    job = client.job("a" * 32)
    client.close()
    for call in (client.models, job.status, lambda: client.inpaint(b"image", b"mask")):
        with pytest.raises(
            ClientClosed, match=r"^the client is closed; make the call before close\(\) or inside `with`"
        ):
            call()


async def test_a_call_after_close_says_what_to_do_with_asyncio() -> None:
    async with AsyncRetouch("http://127.0.0.1:1", retry=0) as client:
        job = client.job("a" * 32)
    for call in (client.models, job.status, lambda: client.inpaint(b"image", b"mask")):
        with pytest.raises(ClientClosed, match="make a new client"):
            await call()
