"""The parser of multipart bodies, as one function that fails where a server would."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from service.core.errors import ServiceError
from service.web.multipart import MAX_FIELD_BYTES, MAX_PARTS, Part, PartsReader

_PIECES = (1, 7, 65_536)
"""Sizes of the pieces in which a body arrives; only the choice of the reported fault may depend on them."""


def survive(data: bytes, open_reader: Callable[[str], PartsReader] = PartsReader) -> int:
    """Return the number of parts in a body, 0 if it is refused; the first line of the data is the Content-Type.

    Raises:
        AssertionError: a promise was broken.
    """
    content_type, _, body = data.partition(b"\n")
    outcomes = [_outcome(open_reader, content_type.decode("latin-1"), body, piece) for piece in _PIECES]
    read = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert all(outcome == read[0] for outcome in read), f"it depends on the pieces: {read}"
    return len(read[0]) if read else 0


def _outcome(
    open_reader: Callable[[str], PartsReader], content_type: str, body: bytes, piece: int
) -> list[tuple[str, bool, bytes]] | int:
    """Return the parts, or the status of the refusal."""
    status = 0
    parts: list[Part] = []
    try:
        reader = open_reader(content_type)
        for start in range(0, len(body), piece):
            reader.feed(body[start : start + piece])
        parts = reader.finish()
        texts = [part.text for part in parts if not part.is_file]
        assert all(isinstance(text, str) for text in texts)
    except ServiceError as error:
        status = error.status
    if status:
        assert 400 <= status < 500
        return status
    assert len(parts) <= 2 * MAX_PARTS
    assert all(part.size == len(part.data) for part in parts)
    assert all(part.size <= MAX_FIELD_BYTES for part in parts if not part.is_file)
    assert sum(part.size for part in parts) <= len(body)
    return [(part.name, part.is_file, part.data) for part in parts]


def seeds() -> Iterator[bytes]:
    """Yield the initial inputs for mutation: bodies as clients send them, and a few that are refused."""
    field = b'Content-Disposition: form-data; name="seed"\r\n\r\n7'
    file = b'Content-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n\x89PNG'
    for content_type in (
        b"multipart/form-data; boundary=b",
        b'multipart/form-data; boundary="b"; charset=utf-8',
        b"multipart/form-data; boundary=b; charset=utf-16",
        b"multipart/form-data; boundary=b; charset=hex",
        b'multipart/form-data; boundary=b; charset="a\0b"',
    ):
        yield content_type + b"\n--b\r\n" + field + b"\r\n--b\r\n" + file + b"\r\n--b--\r\n"
    begin = b"multipart/form-data; boundary=b\n"
    yield begin + b"--b\r\n" + file
    yield begin + b"preamble\r\n--b\r\n" + field + b"\r\n--b--\r\nepilogue"
    yield begin + b"--b\r\nContent-Disposition: form-data; filename*=utf-8''x; name*=y\r\n\r\n\r\n--b--"
    yield begin + (b"--b\r\n" + field + b"\r\n") * 20 + b"--b--\r\n"
    yield b"multipart/form-data\n--b--"
