"""Command `retouch sweep`: chooses the rules of strategy `auto` for a model by measuring on a folder of pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engines.engine_names import EngineChoice
from engines.terminal.folders import folder_flag
from engines.terminal.log_lines import logs_on_stderr

if TYPE_CHECKING:
    from retouch.sweep.measuring import CaseMeasurements
    from retouch.sweep.session import SweepResult


def sweep(  # noqa: PLR0913, PLR0917 (each parameter is a flag of the command)
    model: Annotated[Path, typer.Argument(help="Folder of the model version, models/NAME/VERSION.")],
    pictures: Annotated[Path, typer.Argument(help="Folder of photographs; its subfolders are read too.")],
    lpips_features: Annotated[Path, typer.Option(help="AlexNet's features (safetensors), for LPIPS.")],
    sizes: Annotated[
        str,
        typer.Option(
            help="Sizes in pixels, separated by commas: the side of square crops up to the largest tile of the model, "
            "the longer side of whole photographs above it. By default the smallest tile, the largest, and twice that."
        ),
    ] = "",
    per_cell: Annotated[
        int, typer.Option(min=1, help="Number of photographs for each size, coverage and kind of hole.")
    ] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the holes and of the order of the photographs.")] = 0,
    write: Annotated[bool, typer.Option("--write", help="Write the rules into the model's manifest.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Choose no rules: compare strategy auto with whole and crop.")
    ] = False,
    engine: Annotated[
        EngineChoice,
        typer.Option(
            envvar="RETOUCH_ENGINE",
            metavar="NAME",
            help="Runtime: auto, trt, inductor, onnxrt-cuda, openvino, onnxrt or fake.",
        ),
    ] = "auto",
    threads: Annotated[
        int, typer.Option(min=0, help="CPU threads of the engine and of LPIPS. 0: one for each core.")
    ] = 0,
    cache_dir: Annotated[Path, folder_flag("Engine cache.", envvar="RETOUCH_ENGINE_CACHE_DIR")] = Path("cache"),
    json_file: Annotated[Path | None, typer.Option("--json", help="File for all figures as JSON.")] = None,
) -> None:
    """Measure on photographs what strategy auto of an inpainting model should do: fill whole images, or crops.

    Holes of four coverages and three kinds are filled by every candidate, and rules are
    chosen by image size and hole thickness. Report figures on other photographs
    than these: run the command on those with --compare.

    Example: retouch sweep models/photos/5 photos --lpips-features
    alexnet.safetensors --write
    """
    import time  # noqa: PLC0415 (the command's help should not wait for any of these)
    from datetime import datetime, timezone  # noqa: PLC0415

    from engines.engine_choice import EngineOptions  # noqa: PLC0415
    from retouch.sweep import session  # noqa: PLC0415 (loads torch)

    if write and compare:
        raise typer.BadParameter("--compare chooses no rules that --write could write; leave one out")
    session.check_outputs(json_file, model if write else None)
    _set_cpu_threads(threads)
    request = session.SweepRequest(
        model=model,
        pictures=pictures,
        lpips_features=lpips_features,
        sizes=parse_sizes(sizes) if sizes else (),
        per_cell=per_cell,
        seed=seed,
        choose=not compare,
        engine=EngineOptions(engine, threads, cache_dir),
    )
    with logs_on_stderr():
        swept = session.sweep(request, _progress, time.perf_counter, datetime.now(timezone.utc).date())
    _print_figures(swept)
    if write and swept.rules:
        kept = session.write_rules(model, swept.rules)
        typer.echo(f"wrote the rules into {model}")
        if not kept:
            typer.echo("its manifest's owner or group has changed: check that the server can read it", err=True)
    if json_file:
        with session.report_write_errors(json_file):
            json_file.write_text(json.dumps(swept.report, indent=1) + "\n", "utf-8")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse sizes such as `"256,512"` to `(256, 512)`, ascending.

    Raises:
        typer.BadParameter: an entry is not a number of at least 32 pixels.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) >= 32 for part in parts):
        raise typer.BadParameter(f"{text!r}: write pixels, 32 or more, with commas, as in 256,512,1024")
    return tuple(sorted({int(part) for part in parts}))


def _set_cpu_threads(threads: int) -> None:
    if threads:
        import cv2  # noqa: PLC0415 (loaded only here)
        import torch  # noqa: PLC0415

        torch.set_num_threads(threads)
        cv2.setNumThreads(threads)


def _progress(rows: Iterator[CaseMeasurements], total: int) -> Iterator[CaseMeasurements]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    yield from track(rows, "filling", total=total, console=Console(stderr=True))


def _print_figures(swept: SweepResult) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from engines.terminal.tables import print_table  # noqa: PLC0415 (loads rich)

    console = Console()
    candidates = list(swept.rows[0].tried)
    table = Table(title=f"{swept.manifest.key}: mean LPIPS ({swept.report['engine']})")
    for column in ("size", "kind", "coverage", "pictures", *candidates):
        table.add_column(column, justify="right")
    for cell in swept.report["cells"]:
        figures = (f"{cell['candidates'][candidate]['lpips']:.4f}" for candidate in candidates)
        table.add_row(str(cell["size"]), cell["kind"], cell["coverage"], str(cell["pictures"]), *figures)
    print_table(table, console)
    for size, total in swept.report["totals"].items():
        console.print(
            f"{size}: auto is {total['over_all']:.3f} × the better of whole and crop in each cell, "
            f"{total['worst_cell']:.3f} × in the worst one",
            highlight=False,
        )
    for rule in swept.rules.rules if swept.rules else ():
        console.print(rule.model_dump_json(exclude_none=True), highlight=False, soft_wrap=True)
