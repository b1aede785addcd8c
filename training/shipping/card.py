"""The card of a trained model: the exporter's card, followed by data, run, figures and failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.manifest import Manifest
from export.card import card_text
from training.evaluate.cases import Protocol
from training.evaluate.holes import Band
from training.evaluate.report import OVERALL

Report = Mapping[str, Any]
_WORST = 5


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model that no measurement gives, written by the person who trained it.

    data: the training data, in a sentence.
    sources: photos.json of `gather`, for the table of sources and licences; None if there is none.
    run: steps, batch, precision, time, device, config.
    failures: the model's known weaknesses, as seen on the contact sheet.
    licence: the licence of the weights.
    """

    data: str
    sources: Mapping[str, Any] | None
    run: str
    failures: str
    licence: str


def protocol_name(report: Report) -> str:
    """Return a readable name of the protocol, such as `bsds500_val, 256² crops, boxes and blobs, 50-75 %`.

    The defaults, strokes and a coverage of 10 to 50 %, are left out.
    """
    protocol = report["protocol"]
    if protocol["pairs"]:
        return f"{protocol['data']}, pairs {protocol['pairs']}{', class ids' if protocol['labels'] else ''}"
    side = f"{protocol['size']}² crops" if protocol["size"] else f"whole, longer side {protocol['width']}"
    kinds = "" if protocol["kinds"] == ["strokes"] else f", {' and '.join(protocol['kinds'])}"
    coverage = Band(*protocol["coverage"])
    covered = "" if coverage == Protocol.model_fields["coverage"].default else f", {coverage}"
    return f"{protocol['data']}, {side}{kinds}{covered}"


def quality_of(reports: Sequence[Report]) -> dict[str, float]:
    """Return the figures for the manifest: the model's in each protocol, and relative to Telea's method if measured."""
    found: dict[str, float] = {}
    for report in reports:
        name, own = protocol_name(report), report["figures"]["model"][OVERALL]
        found |= {f"{name}: {_TITLES[key]}": own[key] for key in _TITLES if key in own}
        if gain := report["gains"].get("telea"):
            found[f"{name}: PSNR over Telea dB"] = gain["psnr_gain_db"]
            for key in ("lpips", "dists", "vgg", "kid"):
                if f"{key}_ratio" in gain:
                    found[f"{name}: {_TITLES[key]} as a part of Telea's"] = gain[f"{key}_ratio"]
    return found


_TITLES = {
    "psnr_db": "PSNR dB",
    "ssim": "SSIM",
    "lpips": "LPIPS",
    "dists": "DISTS",
    "vgg": "VGG distance",
    "kid": "KID",
    "l1": "L1",
    "fid": "FID",
    "diversity": "diversity",
}


def trained_card(manifest: Manifest, facts: ModelFacts, reports: Sequence[Report]) -> str:
    """Write the whole card in Markdown."""
    parts = [card_text(manifest), "## Training\n", f"{facts.run}\n", *_sources_table(facts.sources)]
    for report in reports:
        parts += [f"## Measured: {protocol_name(report)}\n", *_figures_table(report)]
    parts += ["## Where it fails\n", f"{facts.failures}\n", *map(_worst_cases, reports)]
    return "\n".join(parts)


def _sources_table(manifest: Mapping[str, Any] | None) -> list[str]:
    if manifest is None:
        return []
    rows = [f"| {source['name']} | {source.get('kept', 0):,} | {source['licence']} |" for source in manifest["sources"]]
    return ["| source | pictures | licence |", "|---|---|---|", *rows, ""]


def _figures_table(report: Report) -> list[str]:
    model, protocol = report["model"], report["protocol"]
    how = f"The {model['graph']} graph in {model['engine']} {model['precision']}"
    if not report["pictures"]:
        how += f"; pictures drawn from seed {protocol['seed']}; diversity: mean VGG distance of two pictures"
    elif not protocol["pairs"]:
        how += f"; {protocol['masks']} holes, seed {protocol['seed']}"
    columns = [key for key in _TITLES if key in report["figures"]["model"][OVERALL]]
    lines = [f"{how}.\n", f"| holes | pictures | by | {' | '.join(_TITLES[key] for key in columns)} |"]
    lines.append("|---" * (3 + len(columns)) + "|")
    lines += _rows(report["figures"], list(report["figures"]["model"]), columns)
    for classes in (report["by_kind"], report["by_thickness"]):
        if len(names := list(classes["model"])[1:]) > 1:
            lines += _rows(classes, names, columns)
    return [*lines, ""]


def _rows(figures: Mapping[str, Any], classes: Sequence[str], columns: Sequence[str]) -> list[str]:
    lines = []
    for name in classes:
        for painter, by_class in figures.items():
            row = by_class[name]
            cells = " | ".join(f"{row[key]:.4g}" if key in row else "" for key in columns)
            lines.append(f"| {name} | {row['pictures']:g} | {painter} | {cells} |")
    return lines


def _worst_cases(report: Report) -> str:
    if not report["pictures"]:
        return ""
    measure = "lpips" if report["pictures"][0]["model"].get("lpips") is not None else "l1"
    ranked = sorted(report["pictures"], key=lambda picture: float(picture["model"][measure]), reverse=True)[:_WORST]
    named = ", ".join(f"{row['name']} ({row['coverage']:.0%}: {row['model'][measure]:.3f})" for row in ranked)
    return f"Worst of {protocol_name(report)} by {_TITLES[measure]}, with the part that was to be made: {named}.\n"
