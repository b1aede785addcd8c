"""`retouch export`: turns a checkpoint into a model that the service can load."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.errors import EngineUnavailable
from retouch.commands.publishing import SAMPLE_PICTURES, model_name_from_file, print_cases, show_steps

if TYPE_CHECKING:
    from export.pipeline import ExportRequest, ExportResult, Quantiser


def export(  # noqa: PLR0913, PLR0917 (each parameter is a flag of the command)
    checkpoint: Annotated[
        list[Path],  # looked for before torch is loaded, which takes seconds
        typer.Argument(exists=True, dir_okay=False, help="the weights; several files for one model of several nets"),
    ],
    name: Annotated[str | None, typer.Option(help="model name, as in models/NAME; by default that of the file")] = None,
    generator: Annotated[
        str | None, typer.Option(help="family of the net; by default recognised from the keys")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE: overrides what was recognised")] = None,
    batch_norm: Annotated[
        Literal["eval", "batch-statistics"] | None,
        typer.Option(help="running statistics, or the picture's own as in upstream's pix2pix test script"),
    ] = None,
    precision: Annotated[
        Literal["fp16", "fp32", "int8"],
        typer.Option(help="precision of the graph; int8: for inpainting on CPUs only"),
    ] = "fp16",
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="for --precision int8: at least 132 photographs, for calibration and judgement"
        ),
    ] = None,
    sheet: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="for --precision int8: write fills in FP32 and INT8, side by side"),
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, max=1024, help="largest batch an engine is built for")] = 32,
    output: Annotated[Path | None, typer.Option(help="model repository (RETOUCH_MODELS_DIR)")] = None,
    licence: Annotated[str, typer.Option(help="licence of the weights, for the card")] = "not stated",
    training_data: Annotated[str, typer.Option(help="training data of the weights, for the card")] = "not stated",
    images: Annotated[Path, typer.Option(help="pictures to compare the graphs on")] = SAMPLE_PICTURES,
    program: Annotated[
        bool, typer.Option("--program", help="also write program.pt2, which GPUs without TensorRT compile")
    ] = False,
    program_only: Annotated[
        Path | None,
        typer.Option(
            metavar="models/NAME/VERSION", help="write program.pt2 alone, with this host's torch, into a model"
        ),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="inpainting: measure on these photographs which strategy auto should use"),
    ] = None,
    lpips_features: Annotated[
        Path | None, typer.Option(help="AlexNet features (safetensors) for LPIPS, which --sweep and int8 need")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the manifest instead of a table")] = False,
) -> None:
    """Turn a checkpoint into models/NAME/VERSION: ONNX graph, manifest, card.

    FP32 and FP16 graphs are compared with torch on real pictures first; nothing is published below the bars.
    """
    _require_torch()
    if program_only is not None:
        _load_torch()
        _add_program(program_only, checkpoint, images)
        return
    from service.core.settings import load_settings  # noqa: PLC0415 (loads pydantic)

    output = output or load_settings().models_dir
    if name is None:
        name = model_name_from_file(checkpoint[0])
        more = f"; it becomes the next version of {output / name}" if (output / name).exists() else ""
        typer.echo(f"the model is called {name}, after {checkpoint[0].name}; --name calls it otherwise{more}", err=True)
    if sweep is not None and lpips_features is None:
        raise typer.BadParameter("--sweep measures by LPIPS: name AlexNet's features with --lpips-features")
    if (precision == "int8") != (calibration is not None):
        raise typer.BadParameter("--precision int8 and --calibration FOLDER belong together")
    _load_torch()
    from export.pipeline import ExportRequest  # noqa: PLC0415 (is loaded)

    request = ExportRequest(
        checkpoints=tuple(checkpoint),
        name=name,
        images=images,
        generator=generator,
        options={**parse_options(option or ()), **({"batch_norm": batch_norm} if batch_norm else {})},
        precision=precision,
        quantiser=None if calibration is None else _quantiser(calibration, lpips_features, sheet),
        max_batch=max_batch,
        program=program,
        output=output,
        licence=licence,
        training_data=training_data,
    )
    exported = _run_export(request)
    if sweep is not None and lpips_features is not None:
        exported = _add_measured_rules(exported, sweep, lpips_features)
    if as_json:
        typer.echo(exported.manifest.model_dump_json(indent=2))
    else:
        _print_report(exported)


def parse_options(pairs: Sequence[str]) -> Mapping[str, str]:
    """Parse options such as `["levels=7"]` into `{"levels": "7"}`.

    Raises:
        typer.BadParameter: an option has no `=`.
    """
    options = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key and separator):
            raise typer.BadParameter(f"{pair!r}: write KEY=VALUE, as in --option levels=7")
        options[key] = value
    return options


def _require_torch() -> None:
    missing = [module for module in ("torch", "onnx") if importlib.util.find_spec(module) is None]
    if missing:
        raise EngineUnavailable(f"export needs {' and '.join(missing)}: make install-export")


def _load_torch() -> None:
    """Import torch and the rest of export, which takes seconds."""
    from retouch.commands.status_line import status_line  # noqa: PLC0415 (loads rich)

    with status_line("loading torch"):
        importlib.import_module("export.pipeline")


def _quantiser(calibration: Path, lpips_features: Path | None, sheet: Path | None) -> Quantiser:
    from retouch.commands.status_line import status_line  # noqa: PLC0415 (loads rich)
    from retouch.int8.session import prepare  # noqa: PLC0415 (loads torch and the service)

    with status_line("reading the pictures to calibrate on"):
        return prepare(calibration, lpips_features, sheet)


def _run_export(request: ExportRequest) -> ExportResult:
    from export.pipeline import export_model  # noqa: PLC0415 (loads torch)

    with show_steps() as notify:
        return export_model(request, notify)


def _add_measured_rules(exported: ExportResult, pictures: Path, lpips_features: Path) -> ExportResult:
    """Add measured rules to a published model's manifest; without them it stays published, too."""
    from datetime import datetime, timezone  # noqa: PLC0415 (as below)
    from time import perf_counter  # noqa: PLC0415

    from engines.manifest import read_manifest  # noqa: PLC0415
    from retouch.sweep import session  # noqa: PLC0415 (loads torch and the service)

    request = session.SweepRequest(exported.directory, pictures, lpips_features)
    with show_steps() as notify:
        notify(f"sweep over {pictures}")
        swept = session.sweep(request, lambda rows, _: rows, perf_counter, datetime.now(timezone.utc).date())
    if swept.rules:
        session.write_rules(exported.directory, swept.rules)
    return replace(exported, manifest=read_manifest(exported.directory))


def _add_program(directory: Path, checkpoints: Sequence[Path], images: Path) -> None:
    from export.pipeline import add_program  # noqa: PLC0415 (loads torch)

    with show_steps() as notify:
        cases = add_program(directory, checkpoints, images, notify)
    print_cases(cases, title=f"{directory}: parity with torch FP32", caption="")
    typer.echo(f"wrote {directory / 'program.pt2'}")


def _print_report(exported: ExportResult) -> None:
    from rich.console import Console  # noqa: PLC0415 (as above)

    manifest = exported.manifest
    caption = f"bar {manifest.parity.bar_db:g} dB"
    print_cases(manifest.parity.cases, f"{manifest.key}: parity with torch FP32", caption)
    console = Console()
    options = ", ".join(f"{name}={value}" for name, value in manifest.options.items())
    console.print(f"{manifest.generator}: {options}", markup=False, soft_wrap=True)
    for note in exported.notes:
        console.print(note, markup=False, soft_wrap=True)
    console.print(f"published {exported.directory}", markup=False, soft_wrap=True)
