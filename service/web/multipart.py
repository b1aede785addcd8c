"""Parser of multipart/form-data bodies (RFC 7578), which keeps parts in memory.

The package `multipart` parses the heads of parts and finds the boundaries. Starlette's parser takes three times as
long: it writes temporary files and uses python-multipart, which has a callback for every step of a header. A body that
arrives in one piece and has nothing unusual is split at its boundaries here, in half the time.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from service.core.errors import InvalidRequest

MAX_FIELD_BYTES = 4096
MAX_PARTS = 16
_MAX_CACHED_LENGTH = 512
"""Largest size in bytes of a part's head that is cached, as clients repeat the same heads."""
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"?')
"""Matches quoted text; also without the closing quote, so that the search takes linear time for any input."""
_UNQUOTED_BOUNDARY = re.compile(r";\s*boundary=([^\s\";]+)", re.IGNORECASE)
"""Matches a boundary without quotes, also with characters that need them (`=`, `:`, `/`), because some clients leave
them out; the package would read it only up to the first such character."""
_EXTENDED_FILE_NAME = re.compile(r";\s*filename\*\s*=", re.IGNORECASE)


class PartLimits(NamedTuple):
    """Limits of a body's parts."""

    field_bytes: int
    """Size of a text field, in bytes."""
    parts: int
    """Number of files, and number of text fields."""


FEW_PARTS = PartLimits(MAX_FIELD_BYTES, MAX_PARTS)


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
        """Return the part's bytes."""
        return self.slices[0] if len(self.slices) == 1 else b"".join(self.slices)

    @property
    def text(self) -> str:
        """Return the part's text, decoded with the body's charset, or as Latin-1 if that fails.

        Raises:
            InvalidRequest: the charset is not a text encoding.
        """
        return _decode_text(self.data, self.charset)


class PartsReader:
    """Incremental parser of a body; a part with a file name or an image type is a file, any other is a text field."""

    def __init__(self, content_type: str, limits: PartLimits = FEW_PARTS) -> None:
        """Take the boundary from the content type.

        Raises:
            InvalidRequest: the boundary is missing or invalid.
        """
        _, options = parse_options_header(content_type)  # type: ignore[no-untyped-call]
        unquoted = _UNQUOTED_BOUNDARY.search(_QUOTED.sub('""', content_type))
        boundary = unquoted[1] if unquoted else options.get("boundary")
        if not boundary:
            raise InvalidRequest("malformed multipart body: the Content-Type names no boundary")
        self.parts: list[Part] = []
        self._counted = {True: 0, False: 0}
        """Number of files (True) and of text fields (False)."""
        self._limits = limits
        self._charset = _charset(options.get("charset", "utf-8"))
        self._whole = False
        """Whether the whole body came in its first piece."""
        self._beginning: bytes | None = b""
        """First bytes of the body, until there are enough to check that it begins with its boundary; then None."""
        try:  # Latin-1 keeps every byte of a header; names are decoded with the body's charset later
            self._first = b"--" + boundary.encode("latin-1")
            self._parser = PushMultipartParser(self._first[2:], header_charset="latin-1")
        except (MultipartError, UnicodeError) as error:
            raise _malformed_error(error) from error

    def feed(self, data: bytes) -> None:
        """Parse the next piece; data after the last boundary is ignored.

        Raises:
            InvalidRequest: the body is malformed, or has too many or too large parts.
        """
        if self._whole:
            return
        if self._beginning == b"" and (pieces := _divide(data, self._first)) is not None:
            self._whole = True
            self._read_pieces(pieces)
            return
        if self._beginning is not None:
            data = self._check_beginning(data)
        try:
            for event in self._parser.parse(data) if data else ():
                if isinstance(event, MultipartSegment):
                    self._begin_part(event)
                elif event is not None:
                    self._append_data(self.parts[-1], event)
        except MultipartError as error:
            raise _malformed_error(error) from error

    def finish(self) -> list[Part]:
        """Return the parts; called after the whole body was fed.

        Raises:
            InvalidRequest: the body ends before its last boundary.
        """
        if self._whole:
            return self.parts
        try:
            self._parser.close()  # type: ignore[no-untyped-call]
        except MultipartError as error:
            raise InvalidRequest("the multipart body is truncated before its last boundary; send all of it") from error
        return self.parts

    def _read_pieces(self, pieces: list[tuple[bytes, bytes]]) -> None:
        """Read heads and contents of all parts."""
        for head, content in pieces:
            try:
                segment = _remembered_head(head) if len(head) <= _MAX_CACHED_LENGTH else _parse_head(head)
            except MultipartError as error:
                raise _malformed_error(error) from error
            self._begin_part(segment)
            if content:
                self._append_data(self.parts[-1], content)

    def _check_beginning(self, data: bytes) -> bytes:
        """Check that the body begins with its boundary; returns the data to parse, empty until there is enough.

        RFC 2046 allows text before the boundary, but no client sends any, and the parser's reaction to it would depend
        on how the body is split into pieces.
        """
        data = (self._beginning or b"") + data
        if len(data) < len(self._first) + 2:
            self._beginning = data
            return b""
        if not data.removeprefix(b"\r\n").startswith(self._first):
            raise InvalidRequest("malformed multipart body: it does not begin with its boundary")
        self._beginning = None
        return data

    def _begin_part(self, segment: MultipartSegment) -> None:
        if not segment.name:
            raise InvalidRequest('malformed multipart body: a part has no name; send Content-Disposition with "name"')
        name = _decode_text(segment.name.encode("latin-1"), self._charset)
        part = Part(name, _is_file(segment), segment.filename or "", charset=self._charset)
        self.parts.append(part)
        self._counted[part.is_file] += 1
        if self._counted[part.is_file] > self._limits.parts:
            raise InvalidRequest(f"the body has more than {self._limits.parts} files, or fields; send fewer")

    def _append_data(self, part: Part, data: bytes) -> None:
        part.size += len(data)
        if part.size > self._limits.field_bytes and not part.is_file:
            most = self._limits.field_bytes
            message = f"the field {part.name[:80]!r} is over {most} bytes; a file needs a `filename`"
            raise InvalidRequest(message, field=part.name[:80])
        part.slices.append(data)


def _divide(body: bytes, first: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return the heads and contents of a body's parts; None if the body is not complete, or has anything unusual.

    Args:
        body: the first piece of a body.
        first: the first boundary, including the two hyphens.
    """
    if not body.endswith((b"--", b"--\r\n")) or not body.startswith(first):
        return None
    *parts, end = body.split(b"\r\n" + first, MAX_PARTS + 1)
    if not parts or end not in (b"--", b"--\r\n"):
        return None
    parts[0] = parts[0][len(first) :]
    pieces = []
    for part in parts:
        head_end = part.find(b"\r\n\r\n")
        head = part[2:head_end]
        if head_end < 1 or part[:2] != b"\r\n" or b"content-length" in head.lower():
            return None
        pieces.append((head, part[head_end + 4 :]))
    return pieces


def _parse_head(head: bytes) -> MultipartSegment:
    """Read the header fields of a part.

    Raises:
        MultipartError: the fields are malformed.
    """
    for event in PushMultipartParser("-", header_charset="latin-1").parse(b"---\r\n" + head + b"\r\n\r\n"):
        if isinstance(event, MultipartSegment):
            return event
    raise MultipartError("a part has no header")


_remembered_head = lru_cache(maxsize=128)(_parse_head)


def _is_file(segment: MultipartSegment) -> bool:
    """Return whether a part is a file, also if its only name is `filename*` (RFC 5987), which the package ignores."""
    if segment.filename is not None or (segment.content_type or "").startswith("image/"):
        return True
    return _EXTENDED_FILE_NAME.search(_QUOTED.sub("", segment.header("Content-Disposition", ""))) is not None


def _malformed_error(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"malformed multipart body: {error}")


def _charset(announced: str) -> str:
    try:
        return codecs.lookup(announced).name
    except (LookupError, ValueError):  # unknown, or not a valid name
        return "latin-1"


def _decode_text(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset)
    except UnicodeDecodeError:
        return data.decode("latin-1")
    except (LookupError, UnicodeError) as error:  # not a text codec (hex), or decoding fails (punycode)
        raise InvalidRequest(f"a text field is not in the charset that is announced: {error}") from error
