"""The parts of a multipart/form-data body (RFC 7578), kept in memory.

`multipart` finds the boundaries. Starlette's own parser would put every file into a temporary file and hop through a
task for it, and python-multipart, which it stands on, calls back for every step of a header: three times as long.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from service.core.errors import InvalidRequest

MAX_FIELD_BYTES = 4096
MAX_PARTS = 16


@dataclass(slots=True)
class Part:
    """One part of a body."""

    name: str = ""
    is_file: bool = False
    file_name: str = ""
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
        _, options = parse_options_header(content_type)  # type: ignore[no-untyped-call]
        boundary = options.get("boundary")
        if not boundary:
            raise InvalidRequest("malformed multipart body: the Content-Type names no boundary")
        self.parts: list[Part] = []
        self._charset = _charset(options.get("charset", "utf-8"))
        self._beginning: bytes | None = b""
        """Of the body, until there is enough of it to see whether its first boundary comes first."""
        try:  # Latin-1 keeps every byte of a header: names are decoded here
            self._first = b"--" + boundary.encode("latin-1")
            self._parser = PushMultipartParser(self._first[2:], header_charset="latin-1")
        except (MultipartError, UnicodeError) as error:
            raise _malformed(error) from error

    def feed(self, data: bytes) -> None:
        """Take the next piece; what follows the last boundary is ignored.

        Raises:
            InvalidRequest: it cannot be read, or has too many or too large parts.
        """
        if self._beginning is not None:
            data = self._begun(data)
        try:
            for event in self._parser.parse(data) if data else ():
                if isinstance(event, MultipartSegment):
                    self._begin(event)
                elif event is not None:
                    self._extend(self.parts[-1], event)
        except MultipartError as error:
            raise _malformed(error) from error

    def finish(self) -> list[Part]:
        """The parts, once all was fed.

        Raises:
            InvalidRequest: the body ended too soon.
        """
        try:
            self._parser.close()  # type: ignore[no-untyped-call]
        except MultipartError as error:
            raise InvalidRequest("the multipart body ends before its last boundary; send it whole") from error
        return self.parts

    def _begun(self, data: bytes) -> bytes:
        """What can be parsed; nothing as long as too little is there.

        Text before the first boundary, which RFC 2046 allows and no client sends, would be read or refused according to
        the pieces in which it comes.
        """
        data = (self._beginning or b"") + data
        if len(data) < len(self._first) + 2:
            self._beginning = data
            return b""
        if not data.removeprefix(b"\r\n").startswith(self._first):
            raise InvalidRequest("malformed multipart body: it does not begin with its boundary")
        self._beginning = None
        return data

    def _begin(self, segment: MultipartSegment) -> None:
        if not segment.name:
            raise InvalidRequest('malformed multipart body: a part has no name; send Content-Disposition with "name"')
        name = _decoded(segment.name.encode("latin-1"), self._charset)
        part = Part(name, segment.filename is not None, segment.filename or "", charset=self._charset)
        self.parts.append(part)
        if sum(other.is_file == part.is_file for other in self.parts) > MAX_PARTS:
            raise InvalidRequest(f"the body has more than {MAX_PARTS} files, or fields; send fewer")

    @staticmethod
    def _extend(part: Part, data: bytes) -> None:
        part.size += len(data)
        if part.size > MAX_FIELD_BYTES and not part.is_file:
            raise InvalidRequest(f"the field {part.name[:80]!r} is over {MAX_FIELD_BYTES} bytes; is it a file part?")
        part.slices.append(data)


def _malformed(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"malformed multipart body: {error}")


def _charset(announced: str) -> str:
    try:
        return codecs.lookup(announced).name
    except (LookupError, ValueError):  # none of that name, or no name at all
        return "latin-1"


def _decoded(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset)
    except UnicodeDecodeError:
        return data.decode("latin-1")
    except (LookupError, UnicodeError) as error:  # no codec for text, such as hex; or a broken one, such as punycode
        raise InvalidRequest(f"a text field is not in the charset that is announced: {error}") from error
