"""Message framing: a request ends where HTTP defines its end, and gets one reply, in order."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.core.errors import InvalidRequest
from service.web.connection import framing
from service.web.connection.framing import FramedHttp, LingeringTransport, check_head, head_without_upgrade
from tests.service.web.connection.bare_server import serving

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\nX-Request-ID: hidden\r\n\r\n"
"""A body that looks like a request."""
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
EARLY, WHOLE = b"/early", b"/whole"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the request's id, path, header names and body; under /early before it reads the body."""
    body, headers = b"", {name.decode(): value.decode() for name, value in scope["headers"]}
    if scope["path"] == "/slow":
        await asyncio.sleep(0.2)
    while scope["path"] != EARLY.decode():
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    said = {"id": headers.get("x-request-id"), "names": sorted(headers), "body": body.decode("latin-1")}
    answer = json.dumps(said).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


def port_of(server: uvicorn.Server) -> int:
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch, serving(FramedHttp, echo) as server:
        patch.setattr(framing, "LINGER_S", 60.0)  # else a pause of 1 s between two pieces would break the connection
        yield port_of(server)


class Replies:
    """The replies on one connection, which the server then closed."""

    def __init__(self, received: bytes) -> None:
        self.statuses = [int(found) for found in re.findall(rb"HTTP/1.1 (\d+)", received)]
        self.said = [json.loads(found) for found in re.findall(rb"\{.*?\}", received)]
        self.received = received

    @property
    def ids(self) -> list[str]:
        return [said["id"] for said in self.said]


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection; TimeoutError if it does not."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def talk(port: int, *pieces: bytes) -> Replies:
    """Send each piece once the server has taken the one before it, and read until the server closes."""
    address = ("127.0.0.1", port)
    with socket.create_connection(address, timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
            with socket.create_connection(address, timeout=30) as later:  # its event loop answers in order of arrival
                later.sendall(head(fields=b"Connection: close\r\n"))
                read_all(later)
        return Replies(read_all(connection))


def head(name: str = "own", path: bytes = WHOLE, fields: bytes = b"", version: bytes = b"1.1") -> bytes:
    return b"POST %s HTTP/%s\r\nHost: x\r\nX-Request-ID: %s\r\n%s\r\n" % (path, version, name.encode(), fields)


LAST = head("last", fields=b"Connection: close\r\n")
LENGTH = b"Content-Length: %d\r\n" % len(HIDDEN)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize(
    ("protocol", "connection"),
    [
        (b"h2c", b"Upgrade, HTTP2-Settings"),
        (b"websocket", b"Upgrade"),
        (b"h2c, websocket", b"keep-alive, upgrade"),
        (b"TLS/1.0", b"UPGRADE"),
        (b"unheard-of", b"foo,upgrade"),
    ],
)
def test_a_body_behind_an_upgrade_is_the_requests_own(
    port: int, protocol: bytes, connection: bytes, version: bytes
) -> None:
    asked = b"Upgrade: %s\r\nConnection: %s\r\n" % (protocol, connection)
    replies = talk(port, head(fields=asked + LENGTH, version=version), HIDDEN, LAST)
    assert replies.ids == (["own", "last"] if version == b"1.1" else ["own"])
    assert replies.said[0]["body"] == HIDDEN.decode()


def test_chunks_behind_an_upgrade_are_the_requests_own(port: int) -> None:
    for pieces in ([head(fields=UPGRADE + CHUNKED), IN_CHUNKS], [head(fields=CHUNKED + UPGRADE) + IN_CHUNKS]):
        replies = talk(port, *pieces, LAST)
        assert (replies.ids, replies.said[0]["body"]) == (["own", "last"], HIDDEN.decode())


def test_an_upgrade_is_ignored_wherever_its_request_is_cut(port: int) -> None:
    whole = head("one", fields=UPGRADE + LENGTH) + HIDDEN + head("two", fields=LENGTH + UPGRADE) + HIDDEN + LAST
    for cut in range(1, len(whole), 5):
        assert talk(port, whole[:cut], whole[cut:]).ids == ["one", "two", "last"], cut


def test_many_upgrades_in_one_segment_are_each_answered(port: int) -> None:
    names = [f"id{number}" for number in range(200)]
    replies = talk(port, b"".join(head(name, fields=UPGRADE) for name in names), LAST)
    assert replies.ids == [*names, "last"]


def test_the_check_finds_the_fault_in_uvicorns_own_protocol() -> None:
    with serving(HttpToolsProtocol, echo) as server:
        replies = talk(port_of(server), head(fields=UPGRADE + LENGTH), HIDDEN, LAST)
        assert replies.ids == ["own", "hidden", "last"]  # if this fails, uvicorn has fixed it, and our own check can go


@pytest.mark.parametrize("target", [b"x:443", b"/whole"])
def test_connect_is_refused_and_the_connection_closed(port: int, target: bytes) -> None:
    replies = talk(port, b"CONNECT %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (target, LENGTH), HIDDEN)
    assert replies.statuses == [400]


def test_an_early_answer_keeps_the_connection_and_skips_the_body(port: int) -> None:
    replies = talk(port, head("one", EARLY, LENGTH), HIDDEN[:9], HIDDEN[9:], LAST)
    assert replies.ids == ["one", "last"]


def test_an_early_answer_to_a_client_that_asked_leave_for_its_body_closes_the_connection(port: int) -> None:
    expect = b"Expect: 100-continue\r\n"
    for fields in (expect + LENGTH, LENGTH + UPGRADE + expect):
        replies = talk(port, head("one", EARLY, fields), HIDDEN, head("two"))
        assert replies.ids == ["one"]
        assert b"connection: close" in replies.received
    replies = talk(port, head("one", WHOLE, expect + LENGTH), HIDDEN, LAST)
    assert (replies.statuses, replies.ids) == ([100, 200, 200], ["one", "last"])


def test_an_early_answer_to_a_body_that_came_at_once_keeps_the_connection(port: int) -> None:
    asked = head("one", EARLY, b"Expect: 100-continue\r\n" + LENGTH)
    assert talk(port, asked + HIDDEN, LAST).ids == ["one", "last"]


def test_a_large_body_does_not_destroy_the_early_answer_that_closes_its_connection(port: int) -> None:
    body = b"x" * 8_000_000
    fields = b"Connection: close\r\nContent-Length: %d\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head("one", EARLY, fields))
        connection.sendall(body)
        time.sleep(0.1)
        assert Replies(read_all(connection)).ids == ["one"]


def test_what_cannot_be_read_is_refused_after_what_came_before_it(port: int) -> None:
    replies = talk(port, head("one", b"/slow") + b"no request\r\n\r\n" + head("three"), head("four"))
    assert (replies.statuses, replies.ids) == ([200, 400], ["one"])


def test_a_queued_request_with_a_broken_body_is_refused_in_its_turn(port: int) -> None:
    replies = talk(port, head("one", b"/slow") + head("two", WHOLE, CHUNKED) + b"zz\r\n")
    assert (replies.statuses, replies.ids) == ([200, 400], ["one"])


def test_a_broken_body_is_answered_once(port: int) -> None:
    before = talk(port, head("one", WHOLE, CHUNKED), b"zz\r\n")
    assert before.statuses == [400]
    after = talk(port, head("one", EARLY, CHUNKED), b"zz\r\n")
    assert (after.statuses, after.ids) == ([200], ["one"])


def test_a_trailer_is_no_header_field(port: int) -> None:
    trailers = b"X-API-Key: k\r\nX-Request-ID: hidden\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"
    body = b"0\r\n" + trailers + b"\r\n"
    for pieces in (
        [head(fields=CHUNKED), body],
        [head(fields=CHUNKED) + body],
        [head(fields=UPGRADE + CHUNKED) + body],
    ):
        replies = talk(port, *pieces, LAST)
        assert (replies.ids, replies.said[0]["names"]) == (
            ["own", "last"],
            ["host", "transfer-encoding", "x-request-id"],
        )


HOST, OTHER = (b"host", b"x"), (b"accept", b"*/*")


@pytest.mark.parametrize(
    ("version", "headers", "message"),
    [
        ("1.1", [OTHER], "0 Host"),
        ("1.1", [HOST, HOST], "2 Host"),
        ("1.0", [HOST, (b"host", b"y")], "2 Host"),
        ("1.1", [(b"host", b"a b")], "not a host"),
        ("1.1", [(b"host", b"user@a")], "not a host"),
        ("1.1", [(b"host", b"a/b")], "not a host"),
        ("2.0", [HOST], "HTTP/2.0"),
        ("0.9", [], "HTTP/0.9"),
        ("1.0", [(b"transfer-encoding", b"chunked")], "Transfer-Encoding"),
        ("1.1", [HOST, (b"transfer-encoding", b"gzip, chunked")], "Transfer-Encoding"),
        ("1.1", [HOST, (b"transfer-encoding", b"identity")], "Transfer-Encoding"),
        ("1.1", [HOST, (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")], "Transfer-Encoding"),
    ],
)
def test_a_head_that_others_could_read_in_another_way_is_refused(
    version: str, headers: list[tuple[bytes, bytes]], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_head(version, "GET", headers)


@pytest.mark.parametrize("host", [b"", b"localhost:8000", b"[::1]:8000", b"my_server", b"xn--bcher-kva.example"])
def test_an_ordinary_host_passes(host: bytes) -> None:
    check_head("1.1", "GET", [(b"host", host), (b"transfer-encoding", b"Chunked")])
    check_head("1.0", "GET", [])


@pytest.mark.parametrize("fields", [b"", b"Host: x\r\nHost: x\r\n", b"Host: x\r\nhost: y\r\n"])
def test_a_missing_or_repeated_host_is_400_and_says_so(port: int, fields: bytes) -> None:
    replies = talk(port, b"GET /whole HTTP/1.1\r\n" + fields + b"\r\n")
    assert replies.statuses == [400]
    assert b"Host headers; send exactly one" in replies.received


def test_a_head_loses_its_upgrade_and_nothing_else() -> None:
    headers = [HOST, (b"connection", b"close, Upgrade"), (b"upgrade", b"h2c"), (b"x-empty", b""), (b"x", b"\xe9")]
    asked = head_without_upgrade("1.0", b"POST", b"/a?b", [*headers, (b"connection", b"upgrade")])
    assert asked == b"POST /a?b HTTP/1.0\r\nhost: x\r\nconnection: close\r\nx-empty: \r\nx: \xe9\r\n\r\n"


class KeptPackets(asyncio.Transport):
    """A transport that keeps what each call sends."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = list[bytes]()

    def write(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[type-arg,unused-ignore]
        self.sent.append(bytes(data))  # writelines joins its parts and calls this

    def is_closing(self) -> bool:
        return False


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("then", "sent"), [("its body", [HEAD + b"body"]), ("a pause", [HEAD, b"body"]), ("the end", [HEAD])]
)
async def test_the_header_of_a_reply_is_sent_together_with_a_body_that_follows_at_once(
    then: str, sent: list[bytes]
) -> None:
    """A server killed between the two would leave half a reply, after which a proxy cannot ask another server."""
    below = KeptPackets()
    transport = LingeringTransport(below, lambda _: True, asyncio.get_running_loop().call_soon)
    transport.write(HEAD)
    if then == "a pause":
        await asyncio.sleep(0)
    (transport.close if then == "the end" else lambda: transport.write(b"body"))()
    assert below.sent == sent
    await asyncio.sleep(0)
    assert below.sent == sent, "it is sent once"
