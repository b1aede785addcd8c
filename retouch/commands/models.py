"""`retouch models`: the model repository; `list`, `add`: published models; `push`, `withdraw`: a bucket of models."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engines.terminal.folders import folder_flag
from retouch.commands.publishing import SAMPLE_PICTURES, show_steps

if TYPE_CHECKING:
    from engines.manifest import Manifest
    from engines.repository.listing import VersionKey
    from retouch.zoo.rows import Row
    from service.remote_models.bucket import ModelBucket


models_app = typer.Typer(help="List models, add published ones, and push versions to a bucket.")


@models_app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    models_dir: Annotated[Path | None, folder_flag("Model repository (RETOUCH_MODELS_DIR).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List the models of the repository: task, sizes, and how close their graphs are to the original net.

    `retouch models list` shows published models; `retouch models add NAME` adds one of them.
    """
    if context.invoked_subcommand is not None:
        return
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    root = load_settings({"models_dir": models_dir} if models_dir else {}).models_dir
    from engines.repository.listing import why_empty  # noqa: PLC0415 -- loads pydantic

    rows = list_models(root)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif not rows:
        how = "retouch export makes one, retouch models add gets one"
        typer.echo(f"no models in {root.absolute()} ({why_empty(root)}); {how}")
    else:
        _print_models(rows)


@models_app.command("list", epilog="Example: retouch models list --json")
def list_published(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List the published models that can be added, with the licence of their weights. --json shows more about them."""
    from retouch.zoo.table import published_models  # noqa: PLC0415 -- loads pydantic

    rows = published_models()
    if as_json:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in rows], indent=1))
    else:
        _print_published(rows)


@models_app.command("add", epilog="Example: retouch models add lama-onnx --accept-licence")
def add(  # noqa: PLR0913, PLR0917 (each parameter is a flag of the command)
    published: Annotated[str, typer.Argument(metavar="NAME", help="Its name, as `retouch models list` shows it.")],
    file: Annotated[Path | None, typer.Option(help="The published file, if you have it already.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model, as in models/NAME. By default the published name.")
    ] = None,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="State that you have read the licence and accept it.")
    ] = False,
    sha256: Annotated[str | None, typer.Option(metavar="DIGEST", help="SHA-256 that the file must have.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Accept a file whose publisher states no SHA-256.")] = False,
    output: Annotated[Path | None, folder_flag("Model repository to write to (RETOUCH_MODELS_DIR).")] = None,
    images: Annotated[Path, typer.Option(help="Folder of photographs to compare the graphs on.")] = SAMPLE_PICTURES,
    downloads: Annotated[Path | None, folder_flag("Folder for the downloaded file. By default below ~/.cache.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Add a published model: accept its licence, download it, check its digest, and export or import it.

    Only names from `retouch models list` are accepted, never addresses.
    """
    from retouch.zoo.adding import AddRequest, add_model, downloads_folder, find_row, require_licence, terms_of  # noqa: PLC0415
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    row = find_row(published)
    for line in terms_of(row):
        typer.echo(line, err=True)
    asked = not accept_licence and sys.stdin.isatty() and not as_json
    require_licence(row, accepted=accept_licence or (asked and typer.confirm("Do you accept that licence?", err=True)))
    request = AddRequest(
        row=row,
        name=name or row.name,
        output=output or load_settings().models_dir,
        images=images,
        downloads=downloads or downloads_folder(os.environ),
        file=file,
        sha256=sha256.lower() if sha256 else None,
        trust=trust,
    )
    with show_steps() as notify:
        added = add_model(request, notify)
    if as_json:
        facts = {
            "directory": str(added.directory),
            "sha256": added.sha256,
            "manifest": added.manifest.model_dump(mode="json"),
            "notes": added.notes,
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    for note in added.notes:
        typer.echo(note)
    typer.echo(f"published {added.directory}, made of the file with SHA-256 {added.sha256}")


@models_app.command("push", epilog="Example: retouch models push photos/5 --to s3://pictures/models")
def push(
    version: Annotated[str, typer.Argument(metavar="NAME/VERSION", help="Version in the model repository.")],
    to: Annotated[str | None, typer.Option(metavar="URL", help="s3://BUCKET/PREFIX (RETOUCH_MODELS_URL).")] = None,
    models_dir: Annotated[Path | None, folder_flag("Model repository (RETOUCH_MODELS_DIR).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Copy a version into the bucket from which servers with --models-url fetch their models."""
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    root = models_dir or load_settings().models_dir
    key = _version_key(version)
    _check_there(key, root)
    bucket = _open_bucket(to)
    with _plain_errors():
        pushed = bucket.push(key, root / key.name / str(key.version))
    sizes = {name: one.size for name, one in pushed.files.items()}
    facts = {"version": str(key), "files": sizes, "bytes": sum(sizes.values())}
    typer.echo(json.dumps(facts, indent=1) if as_json else f"pushed {key}: {len(sizes)} files, {facts['bytes']} bytes")


@models_app.command("withdraw", epilog="Example: retouch models withdraw photos/5 --from s3://pictures/models")
def withdraw(
    version: Annotated[str, typer.Argument(metavar="NAME/VERSION", help="Version in the bucket.")],
    origin: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Bucket, as s3://BUCKET/PREFIX (RETOUCH_MODELS_URL).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Remove a version, even an incomplete one, from the bucket; servers return to the version before it."""
    key = _version_key(version)
    bucket = _open_bucket(origin)
    with _plain_errors():
        removed = bucket.withdraw(key)
    if as_json:
        typer.echo(json.dumps({"version": str(key), "objects": removed}, indent=1))
    elif removed:
        typer.echo(f"withdrew {key}: {removed} objects")
    if not removed:
        typer.echo(f"{key} is not in the bucket", err=True)
        raise typer.Exit(1)


def _open_bucket(url: str | None) -> ModelBucket:
    from service.core.settings import SettingsInvalid, load_settings  # noqa: PLC0415 -- loads pydantic
    from service.remote_models.assembly import open_model_bucket, parse_models_url  # noqa: PLC0415 -- the same

    settings = load_settings()
    if not (chosen := url or settings.models_url):
        raise SettingsInvalid("name the bucket: s3://BUCKET/PREFIX as an option, or RETOUCH_MODELS_URL")
    return open_model_bucket(parse_models_url(chosen)[0], settings)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn an OSError of the bucket or of a file into one line, and exit with status 1."""
    try:
        yield
    except OSError as error:
        typer.echo(
            f"error: {error}; check the address of the bucket, RETOUCH_S3_ENDPOINT, the credentials "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and that the version's files can be read",
            err=True,
        )
        raise typer.Exit(1) from None


def _version_key(text: str) -> VersionKey:
    from engines.repository.listing import VersionKey  # noqa: PLC0415 -- loads pydantic

    name, _, version = text.partition("/")
    if not (name and version.isdecimal() and int(version)):
        raise typer.BadParameter(f"{text!r} is not NAME/VERSION, as photos/5")
    return VersionKey(name, int(version))


def _check_there(key: VersionKey, root: Path) -> None:
    """Check that there is a folder of that version.

    Raises:
        ModelNotFound: there is none; the message lists the versions of that model, or else those of all models.
    """
    from engines.errors import ModelNotFound  # noqa: PLC0415 -- as the next
    from engines.repository.listing import list_versions, why_empty  # noqa: PLC0415 -- loads pydantic

    if (root / key.name / str(key.version)).exists():
        return
    found = sorted(list_versions(root))
    there = [str(one) for one in found if one.name == key.name] or [str(one) for one in found]
    more = f"; there are {', '.join(there)}" if there else f": {why_empty(root)}"
    raise ModelNotFound(f"no {key} in {root}{more}")


def list_models(root: Path) -> list[dict[str, Any]]:
    """Return one row per version, by name and newest first; a version that cannot be read has an `error` instead."""
    from engines.errors import RetouchError  # noqa: PLC0415 -- loads pydantic
    from engines.repository.listing import list_versions, read_manifest_of  # noqa: PLC0415 -- the same

    rows = []
    for key, found in sorted(list_versions(root).items(), key=lambda one: (one[0].name, -one[0].version)):
        row: dict[str, Any] = {"name": key.name, "version": key.version}
        try:
            row |= _model_facts(read_manifest_of(key, found.directory))
        except RetouchError as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def _model_facts(manifest: Manifest) -> dict[str, Any]:
    left_out = "onnx-fp16" if manifest.precision != "fp16" else None  # FP16 was compared, but is not served
    measured = [one for one in manifest.parity.cases if one.psnr_db is not None and one.backend != left_out]
    worst = min(measured, key=lambda case: case.psnr_db or 0.0, default=None)
    return {
        "task": manifest.task,
        "generator": manifest.generator,
        "precision": manifest.precision,
        "size": manifest.size.model_dump(mode="json", exclude_none=True),
        "max_batch": manifest.max_batch,
        "licence": manifest.licence,
        "parity": {
            "bar_db": manifest.parity.bar_db,
            "cases": len(manifest.parity.cases),
            "worst_db": worst.psnr_db if worst else None,
            "worst_case": f"{worst.backend}, {worst.inputs}" if worst else None,
        },
    }


def _print_models(rows: list[dict[str, Any]]) -> None:
    from rich.markup import escape  # noqa: PLC0415 -- `retouch serve` runs without it
    from rich.table import Column, Table  # noqa: PLC0415 -- the same

    from engines.terminal.tables import print_table  # noqa: PLC0415 -- loads rich

    name_column = Column("model", no_wrap=True)  # names are never folded, because people copy them
    table = Table(name_column, "task", "generator", "precision", "sizes", "parity, worst case")
    for row in rows:
        name = f"{row['name']}/{row['version']}"
        if "error" in row:
            table.add_row(name, "[red]broken[/]", "", "", "", escape(row["error"]))
        else:
            facts = (
                name,
                row["task"],
                row["generator"],
                row["precision"],
                _describe_sizes(row["size"]),
                _describe_parity(row["parity"]),
            )
            table.add_row(*map(escape, facts))
    print_table(table)


def _describe_sizes(rule: dict[str, Any]) -> str:
    if rule["kind"] == "fixed":
        return f"{rule['width']}×{rule['height']} ({rule['fit']})"
    return f"sides {', '.join(map(str, rule['sides']))} ({rule['fit']})"


def _describe_parity(parity: dict[str, Any]) -> str:
    if parity["worst_db"] is None:
        return "identical" if parity["cases"] else "not measured"
    return f"{parity['worst_db']:.1f} dB ({parity['worst_case']}); bar {parity['bar_db']:g} dB"


def _print_published(rows: Sequence[Row]) -> None:
    from rich.markup import escape  # noqa: PLC0415 -- `retouch serve` runs without it
    from rich.table import Column, Table  # noqa: PLC0415 -- the same

    from engines.terminal.tables import print_table  # noqa: PLC0415 -- loads rich

    table = Table(Column("name", no_wrap=True), "what", "licence of the weights", "file", caption="addresses not tried")
    for row in rows:
        how = row.file if row.url is not None else f"{row.file}, by hand: --file"
        table.add_row(*map(escape, (row.name, row.about, row.licence or "not stated", how)))
    print_table(table)
