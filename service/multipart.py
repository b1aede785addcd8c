"""The parts of a multipart/form-data body (RFC 7578), kept in memory.

python-multipart finds the boundaries. Starlette's own parser would put every file into a temporary file and hop through
a task for it; here a part is the slices it came in.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import InvalidRequest

MAX_FIELD_BYTES = 4096
MAX_PARTS = 16


@dataclass(slots=True)
class Part:
    """One part of a body."""

    name: str = ""
    is_file: bool = False
    size: int = 0
    slices: list[bytes] = field(default_factory=list)
    charset: str = "utf-8"

    @property
    def data(self) -> bytes:
        """All of it."""
        return self.slices[0] if len(self.slices) == 1 else b"".join(self.slices)

    @property
    def text(self) -> str:
        """All of it, in the charset of the body; as Latin-1 where it cannot be decoded.

        Raises:
            InvalidRequest: the charset is none for text.
        """
        return _decoded(self.data, self.charset)


class PartsReader:
    """Fed with a body piece by piece; files and fields are told apart by a file name."""

    def __init__(self, content_type: str) -> None:
        """Read the boundary.

        Raises:
            InvalidRequest: there is none, or it cannot be one.
        """
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if not boundary:
            raise InvalidRequest("malformed multipart body: the Content-Type names no boundary")
        self.parts: list[Part] = []
        self._charset = _charset(options.get(b"charset", b"utf-8"))
        self._name = self._value = self._disposition = b""
        self._complete = False
        callbacks = {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_end": self._end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        except FormParserError as error:
            raise InvalidRequest(f"malformed multipart body: {error}") from error

    def feed(self, data: bytes) -> None:
        """Take the next piece.

        Raises:
            InvalidRequest: it cannot be read, or has too many or too large parts.
        """
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"malformed multipart body: {error}") from error

    def finish(self) -> list[Part]:
        """The parts, once all was fed.

        Raises:
            InvalidRequest: the body ended too soon.
        """
        if not self._complete:
            raise InvalidRequest("the multipart body ends before its last boundary; send it whole")
        return self.parts

    def _begin(self) -> None:
        self._name = self._value = self._disposition = b""
        self.parts.append(Part(charset=self._charset))

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def _headers_finished(self) -> None:
        part, (_, options) = self.parts[-1], parse_options_header(self._disposition)
        if b"name" not in options:
            raise InvalidRequest('malformed multipart body: a part has no name; send Content-Disposition with "name"')
        part.name, part.is_file = _decoded(options[b"name"], self._charset), b"filename" in options
        if sum(other.is_file == part.is_file for other in self.parts) > MAX_PARTS:
            raise InvalidRequest(f"the body has more than {MAX_PARTS} files, or fields; send fewer")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        part = self.parts[-1]
        part.size += end - start
        if part.size > MAX_FIELD_BYTES and not part.is_file:
            raise InvalidRequest(f"the field {part.name[:80]!r} is over {MAX_FIELD_BYTES} bytes; is it a file part?")
        part.slices.append(data[start:end])

    def _end(self) -> None:
        self._complete = True


def _charset(announced: bytes) -> str:
    try:
        return codecs.lookup(announced.decode("latin-1")).name
    except (LookupError, ValueError):  # none of that name, or no name at all
        return "latin-1"


def _decoded(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset)
    except UnicodeDecodeError:
        return data.decode("latin-1")
    except (LookupError, UnicodeError) as error:  # no codec for text, such as hex; or a broken one, such as punycode
        raise InvalidRequest(f"a text field is not in the charset that is announced: {error}") from error
