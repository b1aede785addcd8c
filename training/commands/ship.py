"""`python -m training ship`: exports, measures and publishes trained weights as models/NAME/NEXT, with a full card."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.terminal.end_signals import ending_in_order
from engines.terminal.flag_groups import expanded
from engines.terminal.folders import folder_flag
from engines.terminal.key_values import parse_key_values
from engines.terminal.log_lines import logs_on_stderr
from training.commands.flags import EngineFlags, Labels, MetricWeights
from training.errors import DataMissing

if TYPE_CHECKING:
    from training.shipping.card import ModelFacts


@dataclass(frozen=True, slots=True)
class FactFlags:
    """The facts that are written on the model's card."""

    trained_on: Annotated[str, typer.Option(help="Training data, in a sentence.")]
    run: Annotated[
        str, typer.Option(help="Steps, batch, precision, time, device and config of the run, in a sentence.")
    ]
    failures: Annotated[
        str, typer.Option(help="Known weaknesses of the model, as the contact sheets show them, in a sentence.")
    ]
    licence: Annotated[str, typer.Option(help="Licence of the weights.")]
    sources: Annotated[
        Path | None, typer.Option(help="File photos.json of gather, for the sources and their licences.")
    ] = None

    def facts(self) -> ModelFacts:
        """Return the facts, with the sources from their file.

        Raises:
            DataMissing: the file of sources is not the manifest that gather writes.
        """
        from training.shipping.card import ModelFacts  # noqa: PLC0415

        return ModelFacts(self.trained_on, _read_sources(self.sources), self.run, self.failures, self.licence)


@expanded
def ship(  # noqa: PLR0913 -- each is a flag, or a group of flags
    checkpoint: Annotated[Path, typer.Argument(help="Generator of a run, generator.pth.")],
    *,
    name: Annotated[str, typer.Option(help="Name of the model, as in models/NAME.")],
    data: Annotated[Path, typer.Option(help="Folder of held-out images, or of pairs side by side, to measure on.")],
    images: Annotated[Path, typer.Option(help="Folder of images on which the graphs are compared with torch.")],
    facts: FactFlags,
    pairs: Annotated[
        Literal["AtoB", "BtoA"] | None,
        typer.Option(
            help="For translation: AtoB turns the left half of each pair into the right half, BtoA the reverse."
        ),
    ] = None,
    labels: Labels = None,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="As for retouch export.")] = None,
    weights: MetricWeights,
    precision: Annotated[Literal["fp16", "fp32"], typer.Option(help="Precision of the graph.")] = "fp16",
    limit: Annotated[int | None, typer.Option(min=1, help="Measure only the first so many images.")] = None,
    output: Annotated[Path, folder_flag("Model repository to write to.", envvar="RETOUCH_MODELS_DIR")] = Path("models"),
    reports: Annotated[Path | None, typer.Option(help="Folder for the reports and contact sheets.")] = None,
    engine: EngineFlags,
) -> None:
    """Export trained weights as a model, measure it, and write training data, run, figures and weaknesses on its card.

    Example: python -m training ship runs/photos/generator.pth --name photos
    --data held-out --images tests/data --trained-on "20,000 photographs"
    --run "90,000 steps of 32" --failures "invents texture" --licence Apache-2.0
    """
    from export.pipeline import ExportRequest  # noqa: PLC0415 -- as the following, loads torch, OpenCV and engines
    from training.evaluate.cases import Protocol  # noqa: PLC0415
    from training.evaluate.report import print_report  # noqa: PLC0415
    from training.evaluate.session import Request as Evaluation  # noqa: PLC0415
    from training.shipping.session import ShipRequest  # noqa: PLC0415
    from training.shipping.session import ship as run_all  # noqa: PLC0415

    options = parse_key_values(option or (), example="--option side=256")
    evaluation = Evaluation(
        model=checkpoint,
        protocol=Protocol(data=data, size=256, width=512, limit=limit, labels=labels),
        **asdict(weights),
        engine=engine.options(),
    )
    request = ShipRequest(
        ExportRequest((checkpoint,), name, images, options=options, precision=precision, output=output),
        facts.facts(),
        evaluation,
        reports,
        pairs,
    )
    with logs_on_stderr(), ending_in_order():
        shipped = run_all(request, lambda step: typer.echo(step, err=True))
    for report in shipped.reports:
        print_report(report)
    typer.echo(f"published {shipped.directory}")


def _read_sources(path: Path | None) -> dict[str, object] | None:
    if path is None:
        return None
    try:
        found = json.loads(path.read_text("utf-8"))
        rows = [
            {"name": one["name"], "kept": int(one.get("kept", 0)), "licence": one["licence"]}
            for one in found["sources"]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataMissing(f"{path}: not the manifest that gather writes ({error})") from error
    return {"sources": rows}
