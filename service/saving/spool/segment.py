"""The format of the spool's files: results one behind the other, and crossed out when they are durable elsewhere.

A record is a byte that says whether it still counts, a line of JSON (id, length and CRC-32 of the body, sidecar), and
the body. Appending one takes a fifth of the CPU time that a file of its own takes, and crossing it out a twentieth of
what removing that file takes: no directory changes. A process that dies while it writes leaves a torn end, of what it
had not promised; all before it is whole, because records are written one after the other.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

_COUNTS, _CROSSED_OUT = b"+", b"-"
_LOOK = 4096
"""Bytes that are read at once for a line, which is a few hundred long as a rule."""


SEGMENT_BYTES = 4 * 2**20
"""A segment that long is appended to no more, and goes when nothing in it counts any longer."""


class Spooled(NamedTuple):
    """A result in the spool."""

    body: bytes
    sidecar: dict[str, Any]

    def complete_sidecar(self) -> dict[str, Any]:
        """With the digest, which is taken behind the reply."""
        return {**self.sidecar, "sha256": hashlib.sha256(self.body).hexdigest()}


@dataclass(slots=True, eq=False)
class Segment:
    """A file of this process's."""

    path: Path
    end: int = 0
    """Where the next record goes."""
    counting: int = 0
    """Records that are not crossed out."""
    sealed: bool = False
    """A write or a sync of it failed: it is appended to no more."""
    suspect: bool = False
    """A sync of it failed: what was written may be lost, and no later sync would say so."""

    @property
    def full(self) -> bool:
        return self.sealed or self.end >= SEGMENT_BYTES


class _Line(msgspec.Struct):
    id: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    crc32: int
    sidecar: dict[str, Any]


class Record(NamedTuple):
    """A result in a segment: where it begins, where its body does, and what its line says."""

    at: int
    body_at: int
    line: _Line

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.body_at + self.line.bytes


def packed(result_id: str, body: bytes, sidecar: dict[str, Any], at: int) -> tuple[Record, list[bytes]]:
    """The record that will be at that place, and what to write there."""
    line = _Line(result_id, len(body), zlib.crc32(body), sidecar)
    head = b"".join((_COUNTS, msgspec.json.encode(line), b"\n"))
    return Record(at, at + len(head), line), [head, body]


def scan(descriptor: int, start: int = 0) -> tuple[list[Record], int]:
    """The records of an open segment that count, from the one at `start` on, and where what is whole of it ends.

    Raises:
        OSError: it cannot be read.
    """
    counting: list[Record] = []
    at, end = start, os.fstat(descriptor).st_size
    while at < end:
        found = _record(descriptor, at)
        if found is None or found[0].end > end:
            break
        record, counts = found
        if counts:
            counting.append(record)
        at = record.end
    return counting, at


def read_body(descriptor: int, record: Record) -> bytes | None:
    """None where the body is not the one that was spooled.

    Raises:
        OSError: it cannot be read.
    """
    body = os.pread(descriptor, record.line.bytes, record.body_at)
    return body if zlib.crc32(body) == record.line.crc32 and len(body) == record.line.bytes else None


def cross_out(descriptor: int, record: Record) -> None:
    """It no longer counts.

    Raises:
        OSError: the disk is failing.
    """
    os.pwrite(descriptor, _CROSSED_OUT, record.at)


def record_at(descriptor: int, at: int) -> Record | None:
    """The record there, if it counts."""
    found = _record(descriptor, at)
    return found[0] if found is not None and found[1] else None


def _record(descriptor: int, at: int) -> tuple[Record, bool] | None:
    """The record there and whether it counts; None where its line is torn or damaged."""
    head = b""
    while b"\n" not in head:
        more = os.pread(descriptor, _LOOK, at + len(head))
        if not more:
            return None
        head += more
    line = head[: head.index(b"\n")]
    try:
        return Record(at, at + len(line) + 1, msgspec.json.decode(line[1:], type=_Line)), line[:1] == _COUNTS
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
