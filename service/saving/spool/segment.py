"""Format of the spool's files, the segments: a sequence of records, each marked as deleted once its result is durable.

A record is a byte that says whether it is valid, a line of JSON (id, length and CRC-32 of the body, sidecar), and the
body. Appending a record takes a fifth of the CPU time of writing a file, and marking it as deleted a twentieth of
removing a file, because no directory changes. A process that dies during a write leaves an incomplete last record,
which was never acknowledged; all records before it are complete.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from service.saving.local_disk.holes import free_range

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform
    from zlib import crc32

_VALID, _DELETED = b"+", b"-"
_READ_BYTES = 4096
"""Number of bytes to read at once for a line, which usually has a few hundred."""


SEGMENT_BYTES = 4 * 2**20
"""Size in bytes from which a segment counts as full; a full segment is removed once it has no valid records."""


class SpooledResult(NamedTuple):
    """A result in the spool."""

    body: bytes
    sidecar: dict[str, Any]

    def complete_sidecar(self) -> dict[str, Any]:
        """Return the sidecar with the digest of the image, which is computed only now, after the reply."""
        return {**self.sidecar, "sha256": hashlib.sha256(self.body).hexdigest()}


@dataclass(slots=True, eq=False)
class Segment:
    """A segment file of this process."""

    path: Path
    end: int = 0
    """Offset of the next record."""
    valid_records: int = 0
    """Number of valid records."""
    sealed: bool = False
    """Whether nothing more is appended, because a write or sync failed or the segment was closed."""
    suspect: bool = False
    """Whether a sync failed, so that records may be lost although later syncs succeed."""

    @property
    def full(self) -> bool:
        return self.sealed or self.end >= SEGMENT_BYTES

    def is_at_its_path(self, descriptor: int) -> bool:
        """Return whether the open file is still at its path: neither it nor a folder above it was removed or moved."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(descriptor))  # noqa: PTH116 -- for every result
        except FileNotFoundError:
            return False


class _RecordLine(msgspec.Struct):
    id: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    crc32: int
    sidecar: msgspec.Raw


_decode_line = msgspec.json.Decoder(_RecordLine).decode
"""Made with the class: two threads that are the first to decode a class crash the process (msgspec 0.22)."""


class Record(NamedTuple):
    """A result in a segment: offsets of the record and of its body, and its JSON line."""

    at: int
    body_at: int
    line: _RecordLine

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self.body_at + self.line.bytes

    @property
    def sidecar(self) -> dict[str, Any]:
        """The sidecar, decoded at each access. Raises msgspec.DecodeError if it is damaged."""
        return msgspec.json.decode(self.line.sidecar, type=dict[str, Any])


class NewRecord(NamedTuple):
    """A record that is not in a segment yet: its JSON line and the bytes to write."""

    line: _RecordLine
    head: bytes
    body: bytes

    def placed(self, at: int) -> Record:
        """Return the record as it will be at that offset."""
        return Record(at, at + len(self.head), self.line)


def encode_record(result_id: str, body: bytes, sidecar: dict[str, Any]) -> NewRecord:
    """Encode a record.

    Raises:
        ValueError, TypeError: the sidecar has values that JSON cannot represent.
    """
    line = _RecordLine(result_id, len(body), crc32(body), msgspec.Raw(msgspec.json.encode(sidecar)))
    return NewRecord(line, b"".join((_VALID, msgspec.json.encode(line), b"\n")), body)


def scan(descriptor: int, start: int = 0) -> tuple[list[Record], int]:
    """Return the valid records of an open segment from offset `start` on, and the end of the last complete record.

    Raises:
        OSError: the segment cannot be read.
    """
    valid_records: list[Record] = []
    at, end = start, os.fstat(descriptor).st_size
    while at < end:
        found = _parse_record(descriptor, at)
        if found is None or found[0].end > end:
            break
        record, counts = found
        if counts:
            valid_records.append(record)
        at = record.end
    return valid_records, at


def read_body(descriptor: int, record: Record) -> bytes | None:
    """Read the body of a record; None if it is damaged.

    Raises:
        OSError: the segment cannot be read.
    """
    body = os.pread(descriptor, record.line.bytes, record.body_at)
    return body if crc32(body) == record.line.crc32 and len(body) == record.line.bytes else None


def mark_deleted(descriptor: int, record: Record) -> None:
    """Mark a record as deleted.

    Raises:
        OSError: the disk is failing.
    """
    os.pwrite(descriptor, _DELETED, record.at)


def erase(descriptor: int, result_id: str) -> None:
    """Delete all records of a result, and free or, where that is not possible, overwrite their bodies.

    This includes records that are already marked as deleted, as a segment keeps their bytes.

    Raises:
        OSError: the disk is failing.
    """
    for record, _ in _all_records(descriptor):
        if record.line.id == result_id:
            mark_deleted(descriptor, record)
            if not free_range(descriptor, record.body_at, record.line.bytes):
                os.pwrite(descriptor, bytes(record.line.bytes), record.body_at)


def free_deleted(descriptor: int) -> None:
    """Free the space of all records that are marked as deleted, where the file system can.

    Raises:
        OSError: the segment cannot be read.
    """
    for record, counts in _all_records(descriptor):
        if not counts:
            free_range(descriptor, record.body_at, record.line.bytes)


def record_at(descriptor: int, at: int) -> Record | None:
    """Return the record at that offset; None if it is not valid."""
    found = _parse_record(descriptor, at)
    return found[0] if found is not None and found[1] else None


def _all_records(descriptor: int) -> Iterator[tuple[Record, bool]]:
    """Yield the complete records of an open segment, each with whether it is valid."""
    at, end = 0, os.fstat(descriptor).st_size
    while at < end and (found := _parse_record(descriptor, at)) is not None and found[0].end <= end:
        yield found
        at = found[0].end


def _parse_record(descriptor: int, at: int) -> tuple[Record, bool] | None:
    """Return the record at that offset and whether it is valid; None if its line is incomplete or damaged."""
    head = b""
    while b"\n" not in head:
        more = os.pread(descriptor, _READ_BYTES, at + len(head))
        if not more:
            return None
        head += more
    line = head[: head.index(b"\n")]
    try:
        record = Record(at, at + len(line) + 1, _decode_line(line[1:]))
        record.sidecar  # noqa: B018 -- raises if it is damaged
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record, line[:1] == _VALID
