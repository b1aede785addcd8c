"""`retouch export`: turns a checkpoint into a model that the service can load."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.errors import EngineUnavailable
from engines.terminal.flag_groups import expanded
from engines.terminal.key_values import parse_key_values
from retouch.commands.publishing import PublishingFlags, print_cases, show_steps

if TYPE_CHECKING:
    from export.generators.family import Interface
    from export.pipeline import ExportRequest, ExportResult, Quantiser


_WITH_PROGRAM_ONLY = frozenset({"checkpoint", "weights", "program_only", "images", "as_json"})


@dataclass(frozen=True, slots=True)
class PrecisionFlags:
    """The precision of the graph, and what INT8 needs."""

    precision: Annotated[
        Literal["fp16", "fp32", "int8"],
        typer.Option(help="Precision of the graph. int8 is for inpainting on CPUs only."),
    ] = "fp16"
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="For --precision int8: at least 132 photographs, on which it is calibrated and judged.",
        ),
    ] = None
    sheet: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="For --precision int8: write a contact sheet of fills in FP32 and INT8, side by side.",
        ),
    ] = None

    def check(self) -> None:
        """Check that INT8 has photographs, and that a sheet is requested only for INT8.

        Raises:
            typer.BadParameter: the flags contradict each other.
        """
        if (self.precision == "int8") != (self.calibration is not None):
            raise typer.BadParameter("--precision int8 and --calibration FOLDER belong together")
        if self.sheet is not None and self.calibration is None:
            raise typer.BadParameter("--sheet shows fills in FP32 and INT8: it needs --precision int8")

    def quantiser(self, lpips_features: Path | None) -> Quantiser | None:
        """Return a quantiser with the photographs for INT8; None for another precision."""
        if self.calibration is None:
            return None
        from retouch.commands.status_line import status_line  # noqa: PLC0415 (loads rich)
        from retouch.int8.session import prepare  # noqa: PLC0415 (loads torch and the service)

        with status_line("reading the pictures to calibrate on"):
            return prepare(self.calibration, lpips_features, self.sheet)


@expanded
def export(  # noqa: PLR0913 (each is a flag, or a group of flags)
    context: typer.Context,
    checkpoint: Annotated[
        list[Path],  # checked before torch is loaded, which takes seconds
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="File of the weights (.pth, .pt, .safetensors …). Several files for a model of several nets. "
            "For a net in shards, one of them or their index.",
        ),
    ],
    *,
    generator: Annotated[
        str | None,
        typer.Option(
            help="Family of the generator (docs/models.md). By default recognised from the names of the weights."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Which of several nets in the file, such as netG_B. Averaged weights are preferred by default.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Override an option of the generator that was recognised. Repeat for several."
        ),
    ] = None,
    batch_norm: Annotated[
        Literal["eval", "batch-statistics"] | None,
        typer.Option(
            help="eval uses the running statistics; batch-statistics the image's own, as pix2pix's test script does."
        ),
    ] = None,
    precision: PrecisionFlags,
    publishing: PublishingFlags,
    program: Annotated[
        bool, typer.Option("--program", help="Also write program.pt2, for GPUs without TensorRT (engine inductor).")
    ] = False,
    program_only: Annotated[
        Path | None,
        typer.Option(
            metavar="models/NAME/VERSION",
            help="Write only program.pt2, with this host's torch, into this existing model.",
        ),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Inpainting: measure on these photographs what strategy auto should do (retouch sweep).",
        ),
    ] = None,
    lpips_features: Annotated[
        Path | None,
        typer.Option(help="AlexNet's features (safetensors) for LPIPS, which --sweep and --precision int8 need."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the manifest (with --program-only the comparison) as JSON instead of a table."
        ),
    ] = False,
) -> None:
    """Turn a checkpoint into a model: ONNX graph, manifest and card in models/NAME/VERSION.

    The graphs are compared with torch on real images first. If they differ too
    much, nothing is written.

    Example: retouch export latest_net_G.pth --name edges2shoes
    """
    _require_torch()
    if program_only is not None:
        _refuse_flags_of_a_model(context)
        _load_torch()
        _add_program(program_only, checkpoint, publishing.images, weights, as_json=as_json)
        return
    precision.check()
    if sweep is not None and lpips_features is None:
        raise typer.BadParameter("--sweep measures by LPIPS: name AlexNet's features with --lpips-features")
    if lpips_features is not None and sweep is None and precision.calibration is None:
        raise typer.BadParameter("--lpips-features is for --sweep and --precision int8: add one, or leave it out")
    published = publishing.with_defaults(checkpoint[0])
    _load_torch()
    if sweep is not None and lpips_features is not None:
        _check_sweep(sweep, lpips_features)
    from export.pipeline import ExportRequest  # noqa: PLC0415 (is loaded)

    options = parse_key_values(option or (), example="--option levels=7")
    request = ExportRequest(
        checkpoints=tuple(checkpoint),
        generator=generator,
        weights=weights,
        options=options | ({"batch_norm": batch_norm} if batch_norm else {}),
        precision=precision.precision,
        quantiser=precision.quantiser(lpips_features),
        check=None if sweep is None else partial(_check_sweep_of, sweep),
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


def _refuse_flags_of_a_model(context: typer.Context) -> None:
    """Refuse, with --program-only, flags about a model's graph, name or card, which it does not change.

    Raises:
        typer.BadParameter: such flags were given; the message names all.
    """
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if (source := context.get_parameter_source(parameter.name or "")) is not None
        and source.name == "COMMANDLINE"
        and parameter.name not in _WITH_PROGRAM_ONLY
    ]
    if given:
        raise typer.BadParameter(f"--program-only takes everything else from the model: leave out {', '.join(given)}")


def _check_sweep(pictures: Path, lpips_features: Path) -> None:
    """Check before the checkpoint is read that a sweep can begin.

    Raises:
        DataMissing: there are no pictures, or the features cannot be read.
    """
    from retouch.sweep.cases import find_pictures  # noqa: PLC0415 (loads numpy)
    from training.losses.lpips_distance import load_lpips  # noqa: PLC0415 (loads torch)

    find_pictures(pictures, seed=0)
    load_lpips(lpips_features)


def _check_sweep_of(pictures: Path, interface: Interface) -> None:
    """Check before the graphs are written that the sweep over this net can begin.

    Raises:
        SweepImpossible, DataMissing: as for `find_sweepable`.
    """
    from retouch.sweep import session  # noqa: PLC0415 (loads the service)

    request = session.SweepRequest(Path(), pictures, Path())
    session.find_sweepable(f"this net ({interface.task})", interface.task, interface.size, request)


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
    """Add measured rules to a published model's manifest; if that fails, the model stays published without them."""
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


def _add_program(
    directory: Path, checkpoints: Sequence[Path], images: Path, weights: str | None, *, as_json: bool
) -> None:
    from export.pipeline import add_program  # noqa: PLC0415 (loads torch)

    with show_steps() as notify:
        cases = add_program(directory, checkpoints, images, notify, weights)
    if as_json:
        program = str(directory / "program.pt2")
        typer.echo(
            json.dumps({"program": program, "cases": [case.model_dump(mode="json") for case in cases]}, indent=2)
        )
        return
    print_cases(cases, title=f"{directory}: parity with torch FP32", caption="")
    typer.echo(f"wrote {directory / 'program.pt2'}")


def _print_report(exported: ExportResult) -> None:
    from rich.console import Console  # noqa: PLC0415 (as above)

    from export.parity import bars_text  # noqa: PLC0415 (is loaded)

    manifest = exported.manifest
    caption = bars_text(exported.bars, manifest.precision)
    print_cases(manifest.parity.cases, f"{manifest.key}: parity with torch FP32", caption)
    console = Console()
    options = ", ".join(f"{name}={value}" for name, value in manifest.options.items())
    console.print(f"{manifest.generator}: {options}", markup=False, soft_wrap=True)
    for note in exported.notes:
        console.print(note, markup=False, soft_wrap=True)
    console.print(f"published {exported.directory}", markup=False, soft_wrap=True)
