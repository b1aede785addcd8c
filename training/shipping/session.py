"""Exports, evaluates and publishes a model with its card; if a step fails, nothing is published."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from engines.files.outputs import check_output
from engines.manifest import ONNX_FILE, Manifest
from export.generators.family import Interface
from export.pipeline import ExportRequest, export_model
from export.publish import PUBLISHING, publish
from training.evaluate.cases import Direction, Protocol, check_pictures
from training.evaluate.evaluating import check_net
from training.evaluate.session import Progress, load_nets
from training.evaluate.session import Request as Evaluation
from training.evaluate.session import run as evaluate
from training.evaluate.shapes import KINDS
from training.shipping.card import ModelFacts, protocol_name, quality_of, trained_card


@dataclass(frozen=True)
class ShipRequest:
    """The request to publish a model; model, protocol and baselines of `evaluation` are replaced.

    export: the checkpoint, the name, and where to publish.
    reports: folder for reports and contact sheets; None writes none.
    pairs: None for inpainting, which is measured on crops and on whole pictures with each kind of hole.
    """

    export: ExportRequest
    facts: ModelFacts
    evaluation: Evaluation
    reports: Path | None = None
    pairs: Direction | None = None


@dataclass(frozen=True)
class PublishedModel:
    """The published model, and its reports."""

    directory: Path
    manifest: Manifest
    reports: list[dict[str, Any]]


def ship(request: ShipRequest, notify: Callable[[str], None], progress: Progress = iter) -> PublishedModel:
    """Export to a temporary folder, measure that graph, and publish it with its figures.

    Raises:
        OSError: the reports cannot be written; this is checked before the export.
        ExportError, TrainingError, EngineError: nothing was published; the message says why.
    """
    if request.reports:
        check_output(request.reports / "report.json")
    output = request.export.output
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".ship-", dir=output) as staging:
        staged = replace(request.export, output=Path(staging), check=partial(_check_data, request))
        exported = export_model(staged, lambda step: None if step == PUBLISHING else notify(step))
        reports = []
        for protocol in _protocols_to_measure(request, exported.manifest):
            notify(f"measuring on {protocol.data.name}")
            reports.append(_evaluate_model(exported.directory, protocol, request, progress))
        draft = exported.manifest.model_copy(
            update={
                "licence": request.facts.licence,
                "training_data": f"{request.facts.data} {request.facts.run}",
                "quality": quality_of(reports),
            }
        )
        notify(PUBLISHING)
        directory, manifest = publish(
            {ONNX_FILE: exported.directory / ONNX_FILE},
            output,
            lambda version: draft.model_copy(update={"version": version}),
            lambda manifest: trained_card(manifest, request.facts, reports),
        )
    if request.reports:
        _write_reports(reports, manifest, request.reports)
    return PublishedModel(directory, manifest, reports)


def _check_data(request: ShipRequest, net: Interface) -> None:
    """Check before the export that the net can be measured, and that the pictures and the metrics' weights exist.

    Raises:
        TrainingError: the net cannot be measured, or a file is missing.
    """
    nets = load_nets(request.evaluation)
    for protocol in _protocols_to_measure(request, net):
        check_pictures(protocol)
        check_net(request.export.name, net, protocol, nets)


def _protocols_to_measure(request: ShipRequest, net: Interface | Manifest) -> Sequence[Protocol]:
    given = request.evaluation.protocol
    if net.task == "generate":
        return [given.model_copy(update={"pairs": request.pairs, "size": int(net.output.shape[-1])})]
    if request.pairs:
        return [given.model_copy(update={"pairs": request.pairs})]
    frames = {"size": 256}, {"size": None, "width": 512}
    return [given.model_copy(update={**frame, "kinds": (kind,)}) for kind in KINDS for frame in frames]


def _evaluate_model(model: Path, protocol: Protocol, request: ShipRequest, progress: Progress) -> dict[str, Any]:
    evaluation = replace(
        request.evaluation, model=model, protocol=protocol, baselines=() if protocol.pairs else ("telea", "ns")
    )
    if request.reports:
        evaluation = replace(
            evaluation, sheet=request.reports / f"{_report_stem(protocol.model_dump(mode='json'))}.png"
        )
    return evaluate(evaluation, progress)


def _report_stem(protocol: dict[str, Any]) -> str:
    name = protocol_name({"protocol": protocol | {"data": Path(protocol["data"]).name}})
    return name.replace(", ", "-").replace(" ", "-").replace("²", "")


def _write_reports(reports: Sequence[dict[str, Any]], manifest: Manifest, folder: Path) -> None:
    """Write the reports, with the version under which the model was published."""
    for report in reports:
        report["model"]["name"] = manifest.key
        text = json.dumps(report, indent=1) + "\n"
        (folder / f"{_report_stem(report['protocol'])}.json").write_text(text, "utf-8")
