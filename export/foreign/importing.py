"""Imports a foreign graph: a sandboxed child reads and wraps it, this process publishes the wrapped graph.

This process never parses the file. Text from the file is shown without control characters (messages.py).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engines.manifest import ONNX_FILE, Manifest, Parity
from export.card import card_text
from export.errors import GraphRefused
from export.foreign.declaration import Declaration
from export.foreign.messages import GRAPH_FILE, Enforced, Imported, Job, Limits, Report
from export.foreign.running import read_in_child
from export.publish import check_name, publish, report_write_errors

GENERATOR = "onnx"
"""The value of `generator` in the manifests of imported graphs."""
ReadGraph = Callable[[Job, Callable[[str], None]], Report]
"""Reads a foreign graph and reports each step: `read_in_child`, or in tests a function of this process."""
_BAR_DB, _FILL_LEVELS = 45.0, 1.0
_MAX_GRAPH_BYTES = 2**31


@dataclass(frozen=True)
class ImportRequest:
    """The arguments of an import."""

    graph: Path
    name: str
    images: Path
    declaration: Declaration = field(default_factory=Declaration)
    output: Path = Path("models")
    max_batch: int = 32
    licence: str = "not stated"
    training_data: str = "not stated"
    limits: Limits = field(default_factory=lambda: Limits(memory_bytes=8 * 2**30, seconds=600))


@dataclass(frozen=True)
class ImportResult:
    """A published model, the child's findings about its graph, and the protections in force while it was read."""

    directory: Path
    manifest: Manifest
    imported: Imported
    enforced: Enforced


def import_model(
    request: ImportRequest, notify: Callable[[str], None], read: ReadGraph = read_in_child
) -> ImportResult:
    """Import one graph.

    Args:
        request: the file, its declaration, and the facts of the model to publish.
        notify: called with the name of each step as it begins.
        read: reads the foreign file; by default a sandboxed process, because the file is not trusted.

    Raises:
        ExportError: the graph is refused, or cannot be published; the repository is unchanged.
    """
    check_name(request.name)
    with report_write_errors(request.output):
        request.output.mkdir(parents=True, exist_ok=True)
        staging = tempfile.TemporaryDirectory(prefix=".import-", dir=request.output)
    with staging, tempfile.TemporaryDirectory(prefix="retouch-import-") as scratch:
        job = Job(
            graph=request.graph.absolute(),
            pictures=request.images.absolute(),
            scratch=Path(scratch).resolve(),
            limits=request.limits,
            declaration=request.declaration,
        )
        report = read(job, notify)
        if report.imported is None:
            raise GraphRefused(report.refused or "the graph is refused without a reason")
        imported, fill_levels = _promised(report.imported)
        notify("publishing")
        with report_write_errors(request.output):
            graph = Path(staging.name) / GRAPH_FILE
            digest = _taken_over(Path(scratch) / GRAPH_FILE, graph)
            manifest = _manifest(request, imported, fill_levels, digest)
            directory, manifest = publish(
                {ONNX_FILE: graph},
                request.output,
                lambda version: manifest.model_copy(update={"version": version}),
                lambda made: card_text(made, reference="the file's own graph, driven by NumPy"),
            )
    return ImportResult(directory, manifest, imported, report.enforced)


def _taken_over(source: Path, target: Path) -> str:
    """Copy the graph that the child wrote and return its digest; links are not followed, and the size is bounded."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_size > _MAX_GRAPH_BYTES:
            raise GraphRefused("the wrapped graph is larger than 2 GiB")
        with target.open("wb") as copy:
            while block := file.read(2**20):
                digest.update(block)
                copy.write(block)
    return digest.hexdigest()


def _promised(imported: Imported) -> tuple[Imported, float]:
    """Return the import and the grey levels to promise: 1 or, with a note, the wrapped graph's own error if larger."""
    own = max((case.levels_kept for case in imported.cases), default=0.0)
    if own <= _FILL_LEVELS:
        return imported, _FILL_LEVELS
    note = f"the wrapped graph is {own:g} of 255 grey levels off: the manifest promises that, and CPUs compute in FP32"
    return imported.model_copy(update={"notes": (*imported.notes, note)}), own


def _manifest(request: ImportRequest, imported: Imported, fill_levels: float, digest: str) -> Manifest:
    return Manifest(
        name=request.name,
        version=1,
        task="inpaint",
        generator=GENERATOR,
        options=dict(imported.flags),
        inputs=imported.inputs,
        output=imported.output,
        size=imported.size,
        max_batch=min(request.max_batch, imported.max_rows or request.max_batch),
        precision=imported.precision,
        opset=imported.opset,
        onnx_sha256=digest,
        checkpoint_sha256=imported.source_sha256,
        licence=request.licence,
        training_data=request.training_data,
        parity=Parity(bar_db=_BAR_DB, fill_levels=fill_levels, cases=imported.cases),
    )
