"""`retouch models`: lists the model repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from engines.manifest import Manifest


def models(
    models_dir: Annotated[Path | None, typer.Option(help="model repository (RETOUCH_MODELS_DIR)")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print everything as JSON")] = False,
) -> None:
    """List the models: what they do, in which sizes, and how near their graphs are to the original."""
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    root = load_settings({"models_dir": models_dir} if models_dir else {}).models_dir
    from engines.repository.listing import why_empty  # noqa: PLC0415 -- loads pydantic

    rows = list_models(root)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        typer.echo(f"no models in {root.absolute()} ({why_empty(root)}); retouch export makes one")
        return
    _print_models(rows)


def list_models(root: Path) -> list[dict[str, Any]]:
    """Return one row per version, by name and newest first; a version that cannot be read has an `error` instead."""
    from engines.errors import RetouchError  # noqa: PLC0415 -- loads pydantic
    from engines.repository.listing import list_versions, read_manifest_of  # noqa: PLC0415 -- the same

    rows = []
    found = list_versions(root)
    for key in sorted(found, key=lambda key: (key.name, -key.version)):
        row: dict[str, Any] = {"name": key.name, "version": key.version}
        try:
            row |= _model_facts(read_manifest_of(key, found[key].directory))
        except RetouchError as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def _model_facts(manifest: Manifest) -> dict[str, Any]:
    measured = [case for case in manifest.parity.cases if case.psnr_db is not None]
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
