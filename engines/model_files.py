"""The checks of a model's files before a runtime opens them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engines.errors import EngineUnavailable, ModelCorrupt
from engines.files.regular import irregular_entries, open_regular, remedy_for
from engines.manifest import ONNX_FILE, Manifest

_MAX_ONNX_BYTES = 2**31
"""The largest model.onnx in bytes; protobuf reads no larger one."""


def check_model(directory: Path, manifest: Manifest, *, int8: bool, reads_onnx: bool) -> None:
    """Check that a model may be opened: its precision, its files and, if it will be read, model.onnx.

    Raises:
        EngineUnavailable: it is INT8, and `int8` is false.
        ModelCorrupt: its directory holds files that must not be opened, or model.onnx is not the manifest's.
    """
    if manifest.precision == "int8" and not int8:
        raise EngineUnavailable(
            f"{manifest.key} is INT8, which --no-allow-int8 forbids; leave that out, or export it with --precision fp16"
        )
    refuse_irregular_files(directory, manifest)
    if reads_onnx:
        verify_onnx(directory, manifest)


def verify_onnx(directory: Path, manifest: Manifest) -> None:
    """Check that model.onnx has the SHA-256 digest of the manifest.

    Raises:
        ModelCorrupt: it is missing, unreadable or has another digest.
    """
    path = directory / ONNX_FILE
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while file.tell() <= _MAX_ONNX_BYTES and (block := file.read(1 << 20)):
                digest.update(block)
    except OSError as error:
        to_do = remedy_for(error, f"export {manifest.key} again")
        raise ModelCorrupt(f"{path}: cannot be read ({error.strerror}); {to_do}") from error
    if digest.hexdigest() != manifest.onnx_sha256:
        raise ModelCorrupt(
            f"{path}: sha256 is {digest.hexdigest()[:12]}…, the manifest says {manifest.onnx_sha256[:12]}…; "
            f"copy or export {manifest.key} again"
        )


def refuse_irregular_files(directory: Path, manifest: Manifest) -> None:
    """Raise ModelCorrupt if the directory holds FIFOs, devices or sockets, on which a runtime could block for ever."""
    try:
        odd = irregular_entries(directory)
    except OSError as error:
        to_do = remedy_for(error, f"export {manifest.key} again")
        raise ModelCorrupt(f"{directory}: cannot be read ({error.strerror}); {to_do}") from error
    if odd:
        raise ModelCorrupt(
            f"{directory}: {', '.join(odd)}: not a regular file; remove it, or copy or export {manifest.key} again"
        )
