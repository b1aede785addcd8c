"""Adds a published model: licence, file, digest, then export or import. Each step refuses before the next begins."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter, ValidationError

from engines.errors import EngineUnavailable
from engines.files.regular import open_regular
from engines.manifest import ModelName, Sha256
from retouch.zoo.download import Downloader, DownloadSpec
from retouch.zoo.errors import DownloadFailed, FileRefused, LicenceRefused, ZooError
from retouch.zoo.rows import Row
from retouch.zoo.table import published_models

if TYPE_CHECKING:
    from engines.manifest import Manifest
    from export.foreign.declaration import Declaration

Notify = Callable[[str], None]
Made = tuple[Path, "Manifest", tuple[str, ...]]
"""A published model's folder and manifest, and notes from its export or import."""


@dataclass(frozen=True)
class AddRequest:
    """The arguments of adding a model.

    file: the published file, if the user has it; otherwise it is downloaded.
    sha256: the digest that the user knows from elsewhere.
    trust: whether to take a file whose digest is not known.
    """

    row: Row
    name: str
    output: Path
    images: Path
    downloads: Path
    file: Path | None = None
    sha256: str | None = None
    trust: bool = False
    downloader: Downloader = field(default_factory=Downloader)


class Added(NamedTuple):
    """A published model's folder and manifest here, the digest of the file it was made of, and notes for the user."""

    directory: Path
    manifest: Manifest
    sha256: str
    notes: tuple[str, ...] = ()


def find_row(name: str) -> Row:
    """Return the row of that name.

    Raises:
        ZooError: there is none; the message lists the names.
    """
    rows = {row.name: row for row in published_models()}
    if name not in rows:
        raise ZooError(f"no published model {name!r} is known; known models are {', '.join(rows)}")
    return rows[name]


def terms_of(row: Row) -> list[str]:
    """Return the terms that the user must read before a model is added, a line each."""
    return [
        f"{row.name}: {row.about}",
        f"licence of the weights: {row.licence or 'not stated by the source'}"
        + (f" ({row.licence_source})" if row.licence_source else ""),
        f"trained on: {row.training_data or 'not stated by the source'}",
        f"source: {row.source}",
        *(() if row.tried or row.url is None else (f"address (not tried): {row.url}",)),
    ]


def require_licence(row: Row, *, accepted: bool) -> None:
    """Refuse to go on unless the licence was accepted.

    Raises:
        LicenceRefused: the licence was not accepted.
    """
    if accepted:
        return
    why = (
        f"{row.name} is added only if its licence is accepted ({row.licence}): read it"
        if row.licence
        else f"no licence is stated for {row.name}: find out whether you may use the weights ({row.source})"
    )
    raise LicenceRefused(f"{why}, then give --accept-licence")


def add_model(request: AddRequest, notify: Notify) -> Added:
    """Get the file, check its digest and publish it as a model here; the licence was accepted before.

    Raises:
        RetouchError: a step failed; the subclass says which. The repository is unchanged.
    """
    _check_request(request)
    path = request.file or _downloaded(request, notify)
    notify("computing the digest")
    digests = _digests(path)
    _check_file(request, path, digests)
    directory, manifest, notes = _published(request, path, notify)
    if request.file is None:
        path.unlink(missing_ok=True)
    return Added(directory, manifest, digests["sha256"], notes)


def _check_request(request: AddRequest) -> None:
    """Check what the last step needs, before the first one downloads anything."""
    row = request.row
    needed = ("torch", "onnx") if row.command == "export" else ("onnx",)
    if missing := [module for module in needed if importlib.util.find_spec(module) is None]:
        raise EngineUnavailable(f"adding {row.name} needs {' and '.join(missing)}: make install-export")
    try:
        TypeAdapter(ModelName).validate_python(request.name)
    except ValidationError as error:
        raise ZooError(f"--name {request.name!r}: lower-case letters, digits, - and _ only, at most 64") from error
    try:
        TypeAdapter(Sha256).validate_python(request.sha256 or "0" * 64)
    except ValidationError as error:
        raise FileRefused(f"--sha256 {request.sha256!r}: must be 64 hexadecimal digits") from error
    if row.sha256 is not None and request.sha256 not in {None, row.sha256}:
        raise FileRefused(f"--sha256 {request.sha256} is not that of the published file, {row.sha256}; leave it out")


def _downloaded(request: AddRequest, notify: Notify) -> Path:
    row, sha256 = request.row, request.row.sha256 or request.sha256
    target = request.downloads / row.name / row.file
    if target.is_file():
        notify(f"using {target}, which was downloaded before")
        return target
    if row.url is None:
        raise ZooError(f"{row.name} cannot be downloaded by a program: {row.get_by_hand}, and give it with --file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"{target.parent}: cannot be made ({error.strerror}); name another folder with --downloads"
        raise DownloadFailed(why) from error
    request.downloader.fetch(DownloadSpec(row.url, row.hosts, row.size, sha256 is not None), target, notify)
    return target


def _digests(path: Path) -> dict[str, str]:
    made = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}
    try:
        with open_regular(path) as file:
            while block := file.read(2**20):
                for digest in made.values():
                    digest.update(block)
    except OSError as error:
        raise FileRefused(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    return {name: digest.hexdigest() for name, digest in made.items()}


def _check_file(request: AddRequest, path: Path, digests: Mapping[str, str]) -> None:
    row, wanted = request.row, request.row.sha256 or request.sha256
    mine = request.file is not None
    if wanted is not None and digests["sha256"] != wanted:
        if not mine:
            path.unlink(missing_ok=True)
        raise FileRefused(
            f"{path}: its SHA-256 is {digests['sha256']} instead of {wanted}: another or a damaged file"
            f"{'' if mine else '; it was removed'}"
        )
    if wanted is None and not request.trust:
        label = ""
        if row.md5 is not None:
            label = (
                f" Its MD5 {'is' if digests['md5'] == row.md5 else 'is NOT'} the published one, which proves little."
            )
        raise FileRefused(
            f"no source states a SHA-256 of {row.file}. This file has {digests['sha256']}.{label} If you know that "
            f"from a source you trust: --sha256 {digests['sha256']}; or --trust to take it as it is"
        )


def _published(request: AddRequest, path: Path, notify: Notify) -> Made:
    return (_exported if request.row.command == "export" else _imported)(request, path, notify)


def _exported(request: AddRequest, path: Path, notify: Notify) -> Made:
    from export.pipeline import ExportRequest, export_model  # noqa: PLC0415 (loads torch)

    row = request.row
    made = export_model(
        ExportRequest(
            checkpoints=(path,),
            name=request.name,
            images=request.images,
            generator=row.generator,
            options=row.options,
            output=request.output,
            licence=row.licence or "not stated",
            training_data=row.training_data or "not stated",
        ),
        notify,
    )
    return made.directory, made.manifest, made.notes


def _imported(request: AddRequest, path: Path, notify: Notify) -> Made:
    """Import a graph. Raises FileRefused if it is refused, because the table, not the user, chose the flags."""
    from export.errors import GraphRefused  # noqa: PLC0415 (loads the exporter's package)
    from export.foreign.importing import ImportRequest, import_model  # noqa: PLC0415 (needs onnx later)

    row = request.row
    wanted = ImportRequest(
        graph=path,
        name=request.name,
        images=request.images,
        declaration=declaration_of(row),
        output=request.output,
        licence=row.licence or "not stated",
        training_data=row.training_data or "not stated",
    )
    try:
        made = import_model(wanted, notify)
    except GraphRefused as error:
        raise FileRefused(f"{path} is refused as {row.name} ({row.about}): {error}") from error
    return made.directory, made.manifest, (*(f"found: {one}" for one in made.imported.found), *made.imported.notes)


def declaration_of(row: Row) -> Declaration:
    """Return what the row says about its graph, as the flags of `retouch import` would."""
    from export.foreign.declaration import Declaration  # noqa: PLC0415 (the command's help should not wait for it)

    options = {name: value.split(",") if name == "sides" else value for name, value in row.options.items()}
    return Declaration.model_validate(options)


def downloads_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for downloads: below XDG_CACHE_HOME, or ~/.cache."""
    cache = environment.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "retouch" / "downloads"
