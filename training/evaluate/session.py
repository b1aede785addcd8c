"""Runs an evaluation as requested: opens nets and painters, evaluates, writes JSON and contact sheet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.engine_choice import EngineOptions
from engines.files.outputs import check_output
from training.errors import ConfigInvalid
from training.evaluate.cases import Case, Protocol
from training.evaluate.contact_sheet import write_sheet
from training.evaluate.evaluating import Evaluation, MetricNets, evaluate
from training.evaluate.frechet import FeatureNet
from training.evaluate.generated import arrange_grid
from training.evaluate.painters import Baseline, NetPainter, OpenCvPainter, Painter, open_model
from training.evaluate.patch_features import PatchFeatures
from training.evaluate.served import ServedPainter
from training.loop.sheets import write_sheet as write_picture
from training.losses.dists_distance import Dists, load_dists
from training.losses.lpips_distance import load_lpips
from training.losses.vgg16 import load_features

Progress = Callable[[Sequence[Case]], Iterator[Case]]


@dataclass(frozen=True)
class Request:
    """The request for one evaluation; metrics whose weights are not given are left out.

    against: other models, measured on the same cases.
    dists_weights: weights of DISTS, which also needs `vgg_features` with all five blocks.
    server: address of a running server that has the model, to measure it as served too; None for no such measurement.
    """

    model: Path
    protocol: Protocol
    against: tuple[Path, ...] = ()
    baselines: tuple[Baseline, ...] = ("telea", "ns")
    lpips_features: Path | None = None
    dists_weights: Path | None = None
    vgg_features: Path | None = None
    fid_features: Path | None = None
    server: str | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    json_file: Path | None = None
    sheet: Path | None = None
    sheet_rows: int = 12
    sheet_side: int = 256


def run(request: Request, progress: Progress = iter) -> dict[str, Any]:
    """Run the evaluation and return the report; writes JSON and contact sheet if the request names files.

    Raises:
        OSError: an output file cannot be written; this is checked before anything is computed.
        TrainingError, ModelError, EngineError, ExportError: the data or the model cannot be used; the message says why.
    """
    for file in filter(None, (request.json_file, request.sheet)):
        check_output(file)
    nets = load_nets(request)
    with ExitStack() as stack:
        model = stack.enter_context(closing(open_model(request.model, request.engine)))
        others = [stack.enter_context(closing(painter)) for painter in _open_compared(request, model)]
        found = evaluate([model, *others], request.protocol, nets, request.sheet_rows, progress)
    _write(found, request)
    return found.report


def load_nets(request: Request) -> MetricNets:
    """Load the networks of the metrics.

    Raises:
        TrainingError: a file cannot be used; the message says why.
    """
    return MetricNets(
        lpips=load_lpips(request.lpips_features) if request.lpips_features else None,
        dists=_dists(request),
        vgg=PatchFeatures(load_features(request.vgg_features)) if request.vgg_features else None,
        fid=FeatureNet(request.fid_features) if request.fid_features else None,
    )


def _open_compared(request: Request, model: NetPainter) -> Iterator[Painter]:
    """Open the methods that the model is compared with: itself as served, other models, OpenCV's."""
    if request.server:
        yield ServedPainter(request.server, model.name)
    for path in request.against:
        other = open_model(path, request.engine)
        other.label = other.name
        yield other
    if model.interface.task != "generate":
        yield from map(OpenCvPainter, request.baselines)


def _dists(request: Request) -> Dists | None:
    if request.dists_weights is None:
        return None
    if request.vgg_features is None:
        raise ConfigInvalid("DISTS is computed from VGG16's features; give --vgg-features with all five blocks")
    return load_dists(request.vgg_features, request.dists_weights)


def _write(found: Evaluation, request: Request) -> None:
    if request.json_file:
        request.json_file.write_text(json.dumps(found.report, indent=1) + "\n", "utf-8")
    if request.sheet and found.drawn:
        write_picture(arrange_grid(found.drawn), request.sheet)
    elif request.sheet:
        write_sheet(found.rows, request.sheet, request.sheet_side)
