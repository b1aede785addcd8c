"""`retouch export`: turns a checkpoint into a model that the service can load."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.errors import EngineUnavailable
from engines.terminal.flag_groups import expanded
from engines.terminal.key_values import parse_key_values
from retouch.commands.publishing import PublishingFlags, print_cases, show_steps

if TYPE_CHECKING:
    from export.pipeline import ExportRequest, ExportResult, Quantiser


@dataclass(frozen=True, slots=True)
class PrecisionFlags:
    """The precision of the graph, and what INT8 needs."""

    precision: Annotated[
        Literal["fp16", "fp32", "int8"],
        typer.Option(help="precision of the graph; int8: for inpainting on CPUs only"),
    ] = "fp16"
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="for --precision int8: at least 132 photographs, for calibration and judgement"
        ),
    ] = None
    sheet: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="for --precision int8: write fills in FP32 and INT8, side by side"),
    ] = None

    def check(self) -> None:
        """Check that INT8 has photographs.

        Raises:
            typer.BadParameter: the flags contradict each other.
        """
        if (self.precision == "int8") != (self.calibration is not None):
            raise typer.BadParameter("--precision int8 and --calibration FOLDER belong together")

    def quantiser(self, lpips_features: Path | None) -> Quantiser | None:
        """Read the photographs for INT8; None in another precision."""
        if self.calibration is None:
            return None
        from retouch.commands.status_line import status_line  # noqa: PLC0415 (loads rich)
        from retouch.int8.session import prepare  # noqa: PLC0415 (loads torch and the service)

        with status_line("reading the pictures to calibrate on"):
            return prepare(self.calibration, lpips_features, self.sheet)


@expanded
def export(  # noqa: PLR0913 (each is a flag, or a group of flags)
    checkpoint: Annotated[
        list[Path],  # looked for before torch is loaded, which takes seconds
        typer.Argument(exists=True, dir_okay=False, help="the weights; several files for one model of several nets"),
    ],
    *,
    generator: Annotated[
        str | None, typer.Option(help="family of the net; by default recognised from the keys")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE: overrides what was recognised")] = None,
    batch_norm: Annotated[
        Literal["eval", "batch-statistics"] | None,
        typer.Option(help="running statistics, or the picture's own as in upstream's pix2pix test script"),
    ] = None,
    precision: PrecisionFlags,
    publishing: PublishingFlags,
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
        _add_program(program_only, checkpoint, publishing.images)
        return
    published = publishing.with_defaults(checkpoint[0])
    if sweep is not None and lpips_features is None:
        raise typer.BadParameter("--sweep measures by LPIPS: name AlexNet's features with --lpips-features")
    precision.check()
    _load_torch()
    from export.pipeline import ExportRequest  # noqa: PLC0415 (is loaded)

    options = parse_key_values(option or (), example="--option levels=7")
    request = ExportRequest(
        checkpoints=tuple(checkpoint),
        generator=generator,
        options=options | ({"batch_norm": batch_norm} if batch_norm else {}),
        precision=precision.precision,
        quantiser=precision.quantiser(lpips_features),
        program=program,
        **published,
    )
    exported = _run_export(request)
    if sweep is not None and lpips_features is not None:
        exported = _add_measured_rules(exported, sweep, lpips_features)
    if as_json:
        typer.echo(exported.manifest.model_dump_json(indent=2))
    else:
        _print_report(exported)


def _require_torch() -> None:
    missing = [module for module in ("torch", "onnx") if importlib.util.find_spec(module) is None]
    if missing:
        raise EngineUnavailable(f"export needs {' and '.join(missing)}: make install-export")


def _load_torch() -> None:
    """Import torch and the rest of export, which takes seconds."""
    from retouch.commands.status_line import status_line  # noqa: PLC0415 (loads rich)

    with status_line("loading torch"):
        importlib.import_module("export.pipeline")


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
