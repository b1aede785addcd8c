"""Messages between the process that publishes and the child that reads a foreign file, as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engines.manifest import ParityCase, Precision, Sha256, SizeRule, TensorSpec
from export.foreign.declaration import Declaration

REPORT_FILE = "report.json"
GRAPH_FILE = "wrapped.onnx"
_MAX_TEXT_LENGTH = 2000


def printable(text: str) -> str:
    """Return text without control characters, so that a file cannot steer a terminal, and at most 2,000 characters."""
    plain = "".join(c if c.isprintable() else "�" for c in text[: _MAX_TEXT_LENGTH + 1])
    return plain if len(plain) <= _MAX_TEXT_LENGTH else plain[:_MAX_TEXT_LENGTH] + " …"


PlainText = Annotated[str, AfterValidator(printable)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Message):
    """Limits of a child: bytes of address space, and seconds of wall-clock time and of CPU time per core."""

    memory_bytes: int = Field(ge=2**29)
    seconds: float = Field(gt=0)


class Job(_Message):
    """The child's job: files to read, the folder to write into, and what the user declared about the graph."""

    graph: Path
    pictures: Path
    scratch: Path
    limits: Limits
    declaration: Declaration


class Enforced(_Message):
    """Protections that were in force while the file was read, in words for people."""

    memory: str
    time: str
    network: str
    files: str


class Imported(_Message):
    """A graph that was wrapped and passed its checks; the graph itself is in the scratch folder."""

    flags: dict[str, PlainText]
    """The flags of `retouch import` that describe the graph completely, by name."""
    found: tuple[PlainText, ...]
    """Guesses and measurements, a sentence each."""
    notes: tuple[PlainText, ...]
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    size: SizeRule
    max_rows: int | None
    """1 if the graph takes one picture at a time; None if any number."""
    precision: Precision
    opset: int
    source_sha256: Sha256
    cases: tuple[ParityCase, ...]


class Report(_Message):
    """The child's answer: either why the file is refused, or what was made of it."""

    refused: PlainText | None = None
    imported: Imported | None = None
    enforced: Enforced
