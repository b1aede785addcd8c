"""Generates requests with ambiguous ends (request smuggling) for boundaries.py, from a seed.

Every request has an id that its reply must repeat. Bodies contain hidden requests, whose ids no reply may have: a
server that answers one of them has taken a body for a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

UPGRADES = ("h2c", "websocket", "h2c, websocket", "TLS/1.0", "unheard-of/7", "")
_CONNECTIONS = ("Upgrade", "upgrade", "keep-alive, Upgrade", "Upgrade, HTTP2-Settings", "foo,UPGRADE")
_BOUNDARY = b"frontier"
TOO_LARGE = 30_000
"""Bytes of a body that is refused because of its size; the server's limit lies between it and a picture with mask."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of an exchange; `body` as it is sent, chunked if the header says so."""

    id: str
    status: int
    """Status that its reply should have."""
    head: bytes
    body: bytes = b""

    @property
    def whole(self) -> bytes:
        return self.head + self.body


@dataclass(frozen=True, slots=True)
class Exchange:
    """The pieces that one connection sends, and the replies that it may get."""

    kind: str
    pieces: tuple[bytes, ...]
    requests: tuple[Request, ...]
    """The requests, in order; their replies have the same order. Malformed requests may stay unanswered."""
    hidden: str
    """The id of the requests inside bodies."""
    well_formed: bool = True


class Maker:
    """Makes the requests of one connection; `number` makes them unique."""

    def __init__(self, random: Random, number: int, key: str, picture: bytes, mask: bytes) -> None:
        self.random, self.number, self._key = random, number, key
        self.hidden = f"c{number}-hidden"
        self._ids = itertools.count()
        self._files = {"image": picture, "mask": mask}

    def smuggled(self) -> bytes:
        """Return a request hidden in a body; some variants would consume the next client's request as their body."""
        method, extra = self.random.choice([(b"GET", b""), (b"POST", b"Content-Length: 400\r\n")])
        path = self.random.choice([b"/v1/models", b"/livez", b"/v1/inpaint"])
        head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: %s\r\n" % (method, path, self.hidden.encode())
        return head + extra + b"\r\n"

    def body(self) -> tuple[bytes, bytes]:
        """Return content type and a body that begins or ends with hidden requests."""
        parts = b"".join(
            b'--%s\r\nContent-Disposition: form-data; name="%s"; filename="a"\r\n\r\n%s\r\n' % (_BOUNDARY, name, data)
            for name, data in ((name.encode(), data) for name, data in self._files.items())
        )
        save = b'--%s\r\nContent-Disposition: form-data; name="save"\r\n\r\nfalse\r\n' % _BOUNDARY
        form = parts + save + b"--" + _BOUNDARY + b"--\r\n"
        return b"multipart/form-data; boundary=" + _BOUNDARY, form + self.smuggled() * self.random.randint(1, 3)

    def get(self, extra: bytes = b"", version: bytes = b"1.1") -> Request:
        """Make a request without a body."""
        keyed = self.random.random() < 0.5
        path, status = self.random.choice([(b"/livez", 200), (b"/v1/jobs/" + b"0" * 32, 404 if keyed else 401)])
        return self._request(b"GET " + path, extra, version, keyed, status)

    def post(self, extra: bytes = b"", version: bytes = b"1.1", *, chunked: bool | None = None) -> Request:
        """Make an inpaint request: with a key it is answered when complete, without one it is refused early."""
        keyed = self.random.random() < 0.4
        kind, body = self.body()
        if not keyed and self.random.random() < 0.5:
            body = self.smuggled()  # no form, because the body is never parsed
        if chunked is None:
            chunked = version == b"1.1" and self.random.random() < 0.5
        if chunked:
            framing, body = b"Transfer-Encoding: chunked\r\n", self._chunked(body)
        else:
            framing = b"Content-Length: %d\r\n" % len(body)
        fields = [b"Content-Type: " + kind + b"\r\n", framing, extra]
        self.random.shuffle(fields)
        request = self._request(b"POST /v1/inpaint", b"".join(fields), version, keyed, 200 if keyed else 401)
        return Request(request.id, request.status, request.head, body)

    def refused(self) -> Request:
        """Make a request with a key that is refused before its body is read."""
        target, kind, status, min_length = self.random.choice(
            [
                (b"/v1/inpaint", b"text/plain", 415, 0),
                (b"/v1/inpaint", b"multipart/form-data; boundary=b", 413, TOO_LARGE),
                (b"/v1/nothing", b"text/plain", 404, 0),
                (b"/v1/models", b"text/plain", 405, 0),
            ]
        )
        body = self.smuggled() * (1 + min_length // 90)
        fields = b"Content-Type: %s\r\nContent-Length: %d\r\n" % (kind, len(body))
        extra = self.random.choice([b"", self.upgrade()])
        request = self._request(b"POST " + target, fields + extra, b"1.1", True, status)
        return Request(request.id, status, request.head, body)

    def upgrade(self) -> bytes:
        """Make header lines that request an upgrade to another protocol."""
        random = self.random
        lines = [f"Connection: {random.choice(_CONNECTIONS)}\r\n", f"Upgrade: {random.choice(UPGRADES)}\r\n"]
        lines += random.choice(
            [[], ["HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"], ["Sec-WebSocket-Version: 13\r\n"]]
        )
        random.shuffle(lines)
        return "".join(lines).encode()

    def _request(self, target: bytes, extra: bytes, version: bytes, keyed: bool, status: int) -> Request:
        name = f"c{self.number}-{next(self._ids)}"
        head = b"%s HTTP/%s\r\nHost: localhost\r\nX-Request-ID: %s\r\n" % (target, version, name.encode())
        key = f"X-API-Key: {self._key}\r\n".encode() if keyed else b""
        return Request(name, status, head + key + extra + b"\r\n")

    def _chunked(self, body: bytes) -> bytes:
        pieces, at = [], 0
        while at < len(body):
            size = self.random.choice([1, 7, 64, 1000, len(body)])
            piece = body[at : at + size]
            extension = self.random.choice([b"", b"", b";a", b";a=b", b';a="b;c"'])
            pieces.append(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece))
            at += size
        trailer = b"X-Request-ID: %s\r\nX-API-Key: %s\r\n" % (self.hidden.encode(), self._key.encode())
        return b"".join([*pieces, b"0\r\n", self.random.choice([b"", b"X-Sum: 1\r\n", trailer]), b"\r\n"])


def _cut(random: Random, data: bytes, *places: int) -> tuple[bytes, ...]:
    """Split `data` at or near each position in `places`, or not at all."""
    near = {place + random.choice([-2, -1, 0, 0, 0, 1]) for place in places if random.random() < 0.8}
    cuts = [0, *sorted(place for place in near if 0 < place < len(data)), len(data)]
    return tuple(data[begin:end] for begin, end in itertools.pairwise(cuts))


def _exchange(maker: Maker, kind: str, *requests: Request) -> Exchange:
    """Make an exchange of well-formed requests, split where they begin, where their bodies begin, and at random."""
    places, at = [], 0
    for request in requests:
        in_head, in_body = (maker.random.randrange(max(1, len(part))) for part in (request.head, request.body))
        body = at + len(request.head)
        places += [at, at + in_head, body, body + in_body]
        at += len(request.whole)
    pieces = _cut(maker.random, b"".join(request.whole for request in requests), *places)
    return Exchange(kind, pieces, requests, maker.hidden)


def _plain(maker: Maker) -> Exchange:
    return _exchange(maker, "plain", maker.post(), maker.get())


def _upgrade(maker: Maker) -> Exchange:
    request = maker.random.choice([maker.post, maker.post, maker.get])(maker.upgrade())
    return _exchange(maker, "upgrade", request, *[maker.get()] * maker.random.randint(0, 1))


def _upgrade_at_the_head(maker: Maker) -> Exchange:
    """Send the head and later the body, as a client that waits for the protocol switch."""
    request = maker.post(maker.upgrade())
    return Exchange("upgrade", (request.head, request.body), (request,), maker.hidden)


def _old(maker: Maker) -> Exchange:
    extra = maker.upgrade() if maker.random.random() < 0.5 else b""
    return _exchange(maker, "HTTP/1.0", maker.post(extra, b"1.0", chunked=False))


def _expect(maker: Maker) -> Exchange:
    extra = b"Expect: 100-continue\r\n" + (maker.upgrade() if maker.random.random() < 0.3 else b"")
    request = maker.post(extra)
    return Exchange("100-continue", (request.head, request.body), (request,), maker.hidden)


def _early(maker: Maker) -> Exchange:
    """Send a body in many pieces, mostly after its reply; then another request."""
    request, then = maker.random.choice([maker.post, maker.refused])(), maker.get()
    steps = sorted(maker.random.sample(range(1, len(request.body)), 3))
    body = tuple(request.body[begin:end] for begin, end in itertools.pairwise([0, *steps, len(request.body)]))
    return Exchange("early answer", (request.head, *body, then.whole), (request, then), maker.hidden)


def _pipelined(maker: Maker) -> Exchange:
    kinds: list[Callable[[], Request]] = [maker.get, maker.post, lambda: maker.post(maker.upgrade())]
    return _exchange(maker, "pipelined", *(maker.random.choice(kinds)() for _ in range(maker.random.randint(2, 5))))


_BAD_LINES = (
    b"Content-Length: 0\r\nContent-Length: %d\r\n",
    b"Content-Length: %d\r\nContent-Length: 0\r\n",
    b"Content-Length: %d\r\nContent-Length: %d\r\n",
    b"Content-Length: %d, 0\r\n",
    b"Content-Length: +%d\r\n",
    b"Content-Length: 0x%x\r\n",
    b"Content-Length: -%d\r\n",
    b"Content-Length : %d\r\n",
    b"Content-Length:\r\n %d\r\n",
    b"Content Length: %d\r\n",
    b"X-A: b\nContent-Length: %d\r\n",
    b"X-A: b\rContent-Length: %d\r\n",
    b" Content-Length: %d\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding : chunked\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding:\r\n chunked\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding: xchunked\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding: \x0bchunked\r\n",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked, identity\r\n",
    b"Content-Length: %d\r\nX: y\0z\r\n",
    b"Content-Length: %d\r\nHost: elsewhere\r\n",
    b"Transfer-Encoding: gzip, chunked\r\nX: %d\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nX: %d\r\n",
    b"Transfer-Encoding: identity\r\nX: %d\r\n",
    b"Content-Length: 99999999999999999999%d\r\n",
)
_BAD_CHUNKS = (
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"+5\r\nhello\r\n0\r\n\r\n",
    b"5 ;a\r\nhello\r\n0\r\n\r\n",
    b"5;a\nhello\r\n0\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"5\r\nhelloXX0\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    b"0\r\nContent-Length: 5\r\n\r\n",
    b"zz\r\n",
)


def _bad_framing(maker: Maker) -> Exchange:
    line = maker.random.choice(_BAD_LINES)
    body = maker.random.choice([b"0\r\n\r\n", b""]) + maker.smuggled()
    fields = line % ((len(body),) * line.count(b"%"))
    extra = fields + (maker.upgrade() if maker.random.random() < 0.3 else b"")
    return _bad(maker, "bad framing", _posted(maker, extra), body)


def _bad_chunks(maker: Maker) -> Exchange:
    extra = b"Transfer-Encoding: chunked\r\n" + (maker.upgrade() if maker.random.random() < 0.3 else b"")
    body = maker.random.choice(_BAD_CHUNKS) + maker.smuggled()
    return _bad(maker, "bad chunks", _posted(maker, extra), body)


def _bad_head(maker: Maker) -> Exchange:
    body = maker.smuggled()
    request = _posted(maker, b"Content-Length: %d\r\n" % len(body))
    changed = maker.random.choice(
        [
            (b"POST /v1/inpaint", b"CONNECT localhost:80"),
            (b"POST /v1/inpaint", b"CONNECT /v1/inpaint"),
            (b"HTTP/1.1", b"HTTP/2.0"),
            (b"HTTP/1.1", b"HTTP/0.9"),
            (b" HTTP/1.1", b""),
            (b"Host: localhost\r\n", b""),
            (b"Host: localhost\r\n", b"Host: a b\r\n"),
            (b"\r\n", b"\n"),
            (b"POST /v1/inpaint", b"PRI *"),
        ]
    )
    return _bad(maker, "bad head", Request(request.id, request.status, request.head.replace(*changed)), body)


def _posted(maker: Maker, extra: bytes) -> Request:
    whole = maker.post(b"X-Mark: 1\r\n", chunked=False)
    lines = [line for line in whole.head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    head = b"\r\n".join(lines).replace(b"X-Mark: 1\r\n", extra)
    return Request(whole.id, whole.status, head)


def _bad(maker: Maker, kind: str, request: Request, body: bytes) -> Exchange:
    whole = request.head + body
    places = (len(request.head), maker.random.randrange(len(whole)))
    pieces = _cut(maker.random, whole, *places)
    return Exchange(kind, pieces, (request,), maker.hidden, well_formed=False)


_KINDS: tuple[Callable[[Maker], Exchange], ...] = (
    *(_plain, _upgrade, _upgrade, _upgrade_at_the_head, _upgrade_at_the_head, _old, _expect, _early, _pipelined),
    *(_bad_framing, _bad_chunks, _bad_head),
)


def exchanges(seed: int, count: int, key: str, picture: bytes, mask: bytes) -> Iterator[Exchange]:
    """Yield `count` exchanges, the same for the same seed; requests with `key` inpaint `picture` and `mask`."""
    random = Random(seed)
    for number in range(count):
        yield _KINDS[number % len(_KINDS)](Maker(random, number, key, picture, mask))
