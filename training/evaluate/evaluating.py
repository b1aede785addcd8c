"""One evaluation: measures every painter's result of every case, and averages the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engines.manifest import FixedSize
from export.generators.family import Interface
from training.data.label_maps import FACADE_CLASSES
from training.errors import ConfigInvalid
from training.evaluate.cases import Case, Pixels, Protocol, read_cases
from training.evaluate.contact_sheet import Row
from training.evaluate.frechet import FeatureNet, frechet_distance
from training.evaluate.generated import check_generating, evaluate_generated
from training.evaluate.metrics import l1, psnr_db, ssim
from training.evaluate.painters import EnginePainter, NetPainter, Painter
from training.evaluate.patch_features import PatchFeatures
from training.evaluate.report import CaseFigures, Figures, gains, summarise
from training.losses.dists_distance import Dists
from training.losses.lpips_distance import Lpips

_RGB = 3


@dataclass(frozen=True)
class MetricNets:
    """The networks of the metrics, None where no weights are given; `vgg` is for the VGG distance and KID."""

    lpips: Lpips | None = None
    dists: Dists | None = None
    vgg: PatchFeatures | None = None
    fid: FeatureNet | None = None


@dataclass(frozen=True)
class Evaluation:
    """The report, ready for JSON, with the rows of the contact sheet or the pictures that a `generate` net made."""

    report: dict[str, Any]
    rows: list[Row]
    drawn: Sequence[Pixels] = ()


def evaluate(
    painters: Sequence[Painter],
    protocol: Protocol,
    nets: MetricNets,
    sheet_rows: int = 12,
    progress: Callable[[Sequence[Case]], Iterator[Case]] = iter,
) -> Evaluation:
    """Measure painters on a protocol.

    Args:
        painters: the model, labelled `model`, then the methods that it is compared with.
        protocol: the choice of test cases.
        nets: the metrics' networks; a figure whose network is None is left out.
        sheet_rows: rows of the contact sheet, spread over the cases.
        progress: wraps the cases to show progress.

    Raises:
        ConfigInvalid: the model has another task than the protocol, does not process RGB pictures, or fills one fixed
            area that a hole is not inside.
        DataMissing: pictures are missing or broken, or a `generate` net is measured without VGG16's features.
        EngineFailed: the engine cannot run a case.
    """
    if isinstance(model := painters[0], NetPainter) and model.interface.task == "generate":
        summary, drawn = evaluate_generated(model, protocol, nets.vgg, progress)
        return Evaluation(_report(model, protocol, summary, []), [], drawn)
    _check_tasks(painters, protocol)
    cases = list(read_cases(protocol))
    _check_holes(painters, cases)
    shown = {index * len(cases) // sheet_rows for index in range(sheet_rows)}
    measured, rows = [], []
    pictures: dict[str, list[Pixels]] = {painter.label: [] for painter in painters}
    for index, case in enumerate(progress(cases)):
        painted = {painter.label: painter.paint(case) for painter in painters}
        measured.append(_measure(case, painted, nets))
        if index in shown:
            rows.append(Row(case, painted))
        if nets.fid:
            for label, pixels in painted.items():
                pictures[label].append(pixels)
    summary = summarise(measured)
    if nets.fid:
        _add_fid(summary, pictures, [case.truth for case in cases], nets.fid)
    return Evaluation(_report(painters[0], protocol, summary, measured), rows)


def check_net(name: str, net: Interface, protocol: Protocol, nets: MetricNets) -> None:
    """Check before a long run that the protocol can measure the net; `name` is used in messages.

    Raises:
        ConfigInvalid, DataMissing: as `evaluate`.
    """
    if net.task == "generate":
        check_generating(name, net, protocol, nets.vgg)
    else:
        _check_task(name, net, protocol)


def _check_tasks(painters: Sequence[Painter], protocol: Protocol) -> None:
    for painter in painters:
        if isinstance(painter, NetPainter):
            _check_task(painter.name, painter.interface, protocol)


def _check_task(name: str, net: Interface, protocol: Protocol) -> None:
    task, inputs = ("translate", {"image"}) if protocol.pairs else ("inpaint", {"image", "mask"})
    found = {spec.name for spec in net.inputs}
    if protocol.labels:
        inputs = {"label"} | (found & {"instance"})
    elif task == "inpaint":
        found -= {"latent"}  # each hole is filled once, from fixed random numbers
    if (net.task, found) != (task, inputs):
        raise ConfigInvalid(
            f"{name} is for {net.task} and takes {', '.join(spec.name for spec in net.inputs)}; "
            "evaluate measures inpainting of image and mask, with --pairs translation of an image, and with --pairs "
            "and --labels translation of class ids"
        )
    _check_channels(name, net)
    size = net.size
    if size.kind == "fixed" and size.hole is not None and (not protocol.masks or protocol.size != size.height):
        raise _area_error(name, size, size.hole)


def _check_holes(painters: Sequence[Painter], cases: Sequence[Case]) -> None:
    """Raise ConfigInvalid if a net that fills one fixed area of a tile would have to fill more."""
    for painter in painters:
        if not isinstance(painter, NetPainter):
            continue
        size = painter.interface.size
        if size.kind != "fixed" or size.hole is None:
            continue
        top, left, bottom, right = size.hole
        for case in cases:
            if case.hole is not None and case.hole[top:bottom, left:right].sum() < case.hole.sum():
                raise _area_error(painter.name, size, size.hole)


def _area_error(name: str, size: FixedSize, hole: tuple[int, int, int, int]) -> ConfigInvalid:
    top, left, bottom, right = hole
    return ConfigInvalid(
        f"{name} fills one fixed area of a tile: rows {top} to {bottom - 1}, columns {left} to {right - 1} of "
        f"{size.width}×{size.height}; give --size {size.height} and --masks FOLDER with holes inside that area"
    )


def _check_channels(name: str, net: Interface) -> None:
    classes = next((spec.classes for spec in net.inputs if spec.name == "label"), None)
    if classes is not None and classes != FACADE_CLASSES:
        raise ConfigInvalid(f"{name} knows {classes} classes; the pictures of --labels facades have {FACADE_CLASSES}")
    channels = [int(spec.shape[-3]) for spec in (*net.inputs, net.output) if spec.name in ("image", net.output.name)]
    if any(count != _RGB for count in channels):
        raise ConfigInvalid(
            f"{name} makes pictures of {channels[-1]} channels from {channels[0]}; "
            "evaluate measures RGB pictures, so give a model with three channels"
        )


def _measure(case: Case, painted: dict[str, Pixels], nets: MetricNets) -> CaseFigures:
    figures = {
        label: Figures(
            psnr_db=psnr_db(pixels, case.truth),
            ssim=ssim(pixels, case.truth),
            l1=l1(pixels, case.truth, case.hole),
            lpips=nets.lpips.distance(pixels, case.truth) if nets.lpips else None,
            dists=nets.dists.distance(pixels, case.truth) if nets.dists else None,
        )
        for label, pixels in painted.items()
    }
    covered = 1.0 if case.hole is None else float(case.hole.mean())
    row = CaseFigures(case.name, case.band, covered, figures, case.kind, case.thickness)
    return _with_patches(row, case, painted, nets.vgg) if nets.vgg else row


def _with_patches(row: CaseFigures, case: Case, painted: dict[str, Pixels], vgg: PatchFeatures) -> CaseFigures:
    """Add each painter's VGG distance, and the features of the filled patches."""
    truth, figures, patches = vgg.extract(case.truth, case.hole), dict(row.by_painter), {}
    for label, pixels in painted.items():
        found = vgg.extract(pixels, case.hole)
        figures[label] = figures[label]._replace(vgg=vgg.distance(found, truth))
        patches[label] = found.patches
    return row._replace(by_painter=figures, patches=patches | {"truth": truth.patches})


def _add_fid(
    summary: dict[str, dict[str, dict[str, float]]],
    painted: dict[str, list[Pixels]],
    truths: list[Pixels],
    net: FeatureNet,
) -> None:
    true = net.features(truths)
    for label, pixels in painted.items():
        summary[label]["all"]["fid"] = round(frechet_distance(net.features(pixels), true), 3)


def _report(model: Painter, protocol: Protocol, summary: dict[str, Any], measured: list[CaseFigures]) -> dict[str, Any]:
    return {
        "model": _described(model),
        "protocol": protocol.model_dump(mode="json", exclude={"data", "masks"})
        | {"data": protocol.data.name, "masks": protocol.masks.name if protocol.masks else "generated"},
        "figures": summary,
        "by_kind": summarise(measured, lambda row: row.kind) if measured else {"model": {}},
        "by_thickness": summarise(measured, lambda row: row.thickness) if measured else {"model": {}},
        "gains": gains(summary) if measured else {},
        "pictures": [
            {
                "name": row.name,
                "band": row.band,
                "kind": row.kind,
                "thickness": row.thickness,
                "coverage": round(row.coverage, 4),
                **{label: figures._asdict() for label, figures in row.by_painter.items()},
            }
            for row in measured
        ],
    }


def _described(model: Painter) -> dict[str, str]:
    if isinstance(model, EnginePainter):
        return {
            "name": model.manifest.key,
            "onnx_sha256": model.manifest.onnx_sha256,
            "graph": model.manifest.precision,
            "engine": model.engine.name,
            "precision": model.engine.precision,
        }
    return {"name": "checkpoint", "engine": "torch", "precision": "fp32"}
