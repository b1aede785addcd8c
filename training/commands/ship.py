"""`python -m training ship`: exports, measures and publishes trained weights as models/NAME/NEXT, with a full card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from engines.engine_names import EngineChoice
from training.errors import DataMissing


def ship(  # noqa: PLR0913, PLR0917 -- each is a flag
    checkpoint: Annotated[Path, typer.Argument(help="generator.pth of a run")],
    name: Annotated[str, typer.Option(help="model name, as in models/NAME")],
    data: Annotated[Path, typer.Option(help="held-out pictures, or pairs, to measure on")],
    images: Annotated[Path, typer.Option(help="pictures to compare the graphs with torch on")],
    trained_on: Annotated[str, typer.Option(help="what it was trained on, in a sentence")],
    run: Annotated[str, typer.Option(help="steps, batch, precision, time, device, config, in a sentence")],
    failures: Annotated[str, typer.Option(help="what it does badly, as the contact sheets show")],
    licence: Annotated[str, typer.Option(help="of the weights")],
    sources: Annotated[Path | None, typer.Option(help="photos.json of gather: lists sources and licences")] = None,
    pairs: Annotated[
        Literal["AtoB", "BtoA"] | None, typer.Option(help="a translation: A is the left half of each pair")
    ] = None,
    labels: Annotated[
        Literal["facades"] | None,
        typer.Option(help="for models of class ids: whose label colours the inputs of pairs are"),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, as for retouch export")] = None,
    lpips_features: Annotated[Path | None, typer.Option(help="AlexNet features (safetensors) for LPIPS")] = None,
    vgg_features: Annotated[
        Path | None, typer.Option(help="VGG16 features (safetensors) for the VGG distance and KID")
    ] = None,
    dists_weights: Annotated[
        Path | None,
        typer.Option(help="weights.pt of DISTS-pytorch, for DISTS; needs all five blocks in --vgg-features"),
    ] = None,
    precision: Annotated[Literal["fp16", "fp32"], typer.Option(help="what the graph computes in")] = "fp16",
    engine: Annotated[EngineChoice, typer.Option(help="what runs the model", envvar="RETOUCH_ENGINE")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="measure on so many pictures only")] = None,
    output: Annotated[Path, typer.Option(help="model repository", envvar="RETOUCH_MODELS_DIR")] = Path("models"),
    reports: Annotated[Path | None, typer.Option(help="folder for the reports and contact sheets")] = None,
    cache_dir: Annotated[
        Path, typer.Option(help="of the engine: compiled graphs", envvar="RETOUCH_ENGINE_CACHE_DIR")
    ] = Path("cache"),
) -> None:
    """Export weights, measure the exported graph, and publish it with data, run, figures and failures on its card."""
    from rich.console import Console  # noqa: PLC0415 -- what follows loads torch, OpenCV and engines

    from engines.engine_choice import EngineOptions  # noqa: PLC0415
    from engines.terminal.tables import print_table  # noqa: PLC0415
    from export.pipeline import ExportRequest  # noqa: PLC0415
    from training.evaluate.cases import Protocol  # noqa: PLC0415
    from training.evaluate.report import gain_lines, table  # noqa: PLC0415
    from training.evaluate.session import Request as Evaluation  # noqa: PLC0415
    from training.shipping.card import ModelFacts  # noqa: PLC0415
    from training.shipping.session import ShipRequest  # noqa: PLC0415
    from training.shipping.session import ship as run_all  # noqa: PLC0415

    evaluation = Evaluation(
        model=checkpoint,
        protocol=Protocol(data=data, size=256, width=512, limit=limit, labels=labels),
        lpips_features=lpips_features,
        vgg_features=vgg_features,
        dists_weights=dists_weights,
        engine=EngineOptions(choice=engine, cache_dir=cache_dir),
    )
    request = ShipRequest(
        ExportRequest(
            (checkpoint,), name, images, options=_parse_options(option or ()), precision=precision, output=output
        ),
        ModelFacts(trained_on, _read_sources(sources), run, failures, licence),
        evaluation,
        reports,
        pairs,
    )
    shipped = run_all(request, lambda step: typer.echo(step, err=True))
    console = Console()
    for report in shipped.reports:
        print_table(table(report), console)
        for line in gain_lines(report):
            console.print(line, markup=False, highlight=False)
    typer.echo(f"published {shipped.directory}")


def _parse_options(pairs: Sequence[str]) -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise typer.BadParameter(f"{wrong[0]!r}: write KEY=VALUE, as in side=256", param_hint="--option")
    return dict(pair.split("=", 1) for pair in pairs)


def _read_sources(path: Path | None) -> dict[str, object] | None:
    if path is None:
        return None
    try:
        found: dict[str, object] = json.loads(path.read_text("utf-8"))
        return {"sources": found["sources"]}
    except (OSError, ValueError, KeyError) as error:
        raise DataMissing(f"{path}: not the manifest that gather writes ({error})") from error
