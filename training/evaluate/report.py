"""The report of an evaluation: means of the figures by class of hole, gains over the baselines, and a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from engines.terminal.tables import print_table
from training.evaluate.patch_features import Patches, kernel_distance

OVERALL = "all"


class Figures(NamedTuple):
    """The figures of one picture by one painter."""

    psnr_db: float
    ssim: float
    l1: float
    """Mean in the hole; over the whole picture where there is no hole."""
    lpips: float | None
    dists: float | None = None
    vgg: float | None = None


class CaseFigures(NamedTuple):
    """The figures of one picture by all painters."""

    name: str
    band: str
    coverage: float
    by_painter: dict[str, Figures]
    kind: str = OVERALL
    thickness: str = OVERALL
    patches: Mapping[str, Patches] = {}
    """Features of the filled patches by painter, and of the truth's as `truth`; empty where they are not measured."""


Summary = dict[str, dict[str, dict[str, float]]]
"""Means of figures, by painter and then by class of hole; the class `all` covers every picture.

The figure `pictures` is the number of pictures.
"""


def summarise(
    measured: Sequence[CaseFigures], class_of: Callable[[CaseFigures], str] = lambda row: row.band
) -> Summary:
    """Average the figures over the pictures of each class of hole; by default the classes are the coverage bands."""
    classes = [OVERALL, *sorted({class_of(row) for row in measured} - {OVERALL}, key=_in_order)]
    return {
        painter: {
            name: _means([row for row in measured if name in (OVERALL, class_of(row))], painter) for name in classes
        }
        for painter in measured[0].by_painter
    }


def _in_order(name: str) -> tuple[str, int, str]:
    """Sort by the first number: `9-16 px` before `17-32 px`, and `over 128 px` last."""
    first = name.split("-", maxsplit=1)[0]
    return ("", int(first), name) if first.isdecimal() else (name, 0, name)


def _means(rows: Sequence[CaseFigures], painter: str) -> dict[str, float]:
    means: dict[str, float] = {"pictures": len(rows)}
    for name in Figures._fields:
        values = [value for row in rows if (value := getattr(row.by_painter[painter], name)) is not None]
        if values:
            means[name] = round(sum(values) / len(values), 5)
    if (kid := _kid(rows, painter)) is not None:
        means["kid"] = round(kid, 5)
    return means


def _kid(rows: Sequence[CaseFigures], painter: str) -> float | None:
    found = [row.patches for row in rows if row.patches]
    if not found:
        return None
    return kernel_distance(*(np.concatenate([patches[name] for patches in found]) for name in (painter, "truth")))


_RATIOS = ("lpips", "dists", "vgg", "kid", "l1")
"""Figures that are compared as ratios: smaller is better, and 0 is perfect."""


def gains(summary: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Compare the model with each baseline over all pictures: PSNR and SSIM as differences, distances as ratios."""
    model = summary["model"][OVERALL]
    found = {}
    for painter in (name for name in summary if name != "model"):
        theirs = summary[painter][OVERALL]
        found[painter] = {
            "psnr_gain_db": round(model["psnr_db"] - theirs["psnr_db"], 4),
            "ssim_gain": round(model["ssim"] - theirs["ssim"], 5),
            **{
                f"{name}_ratio": round(model[name] / theirs[name], 4)
                for name in _RATIOS
                if name in model and theirs.get(name)
            },
        }
    return found


def print_report(report: Mapping[str, Any]) -> None:
    """Print the table of a report, and a sentence for each method that the model is compared with."""
    console = Console()
    print_table(table(report), console)
    for line in gain_lines(report):
        console.print(line, markup=False, highlight=False)


def table(report: Mapping[str, Any]) -> Table:
    """Make a table with a row for each class of hole and painter."""
    figures: Mapping[str, Mapping[str, Mapping[str, float]]] = report["figures"]
    model = report["model"]
    shown = Table(title=f"{model['name']}, {model['engine']} {model['precision']}", caption=report["protocol"]["data"])
    for column in ("holes", "pictures", "painter", *_COLUMNS):
        shown.add_column(column, justify="left" if column in ("holes", "painter") else "right")
    bands = list(figures["model"])
    _add_rows(shown, figures, bands[1:])
    for by_class in (report["by_kind"], report["by_thickness"]):
        if len(names := list(by_class["model"])[1:]) > 1:
            _add_rows(shown, by_class, names)
    _add_rows(shown, figures, bands[:1])
    return shown


_COLUMNS = {
    "PSNR dB": "psnr_db",
    "SSIM": "ssim",
    "LPIPS": "lpips",
    "DISTS": "dists",
    "VGG": "vgg",
    "KID": "kid",
    "L1": "l1",
    "diversity": "diversity",
}


def _add_rows(shown: Table, figures: Mapping[str, Mapping[str, Mapping[str, float]]], classes: Sequence[str]) -> None:
    for name in classes:
        for painter, by_class in figures.items():
            row = by_class[name]
            values = (
                f"{row[key]:.{2 if key == 'psnr_db' else 4}f}" if key in row else "-" for key in _COLUMNS.values()
            )
            shown.add_row(name, f"{row['pictures']:g}", painter, *values)
        shown.add_section()


def gain_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each method that the model is compared with."""
    lines = []
    for painter, gain in report["gains"].items():
        ratios = "".join(
            f", {name.upper()} × {gain[f'{name}_ratio']:.3f}" for name in _RATIOS if f"{name}_ratio" in gain
        )
        lines.append(
            f"model against {painter}: PSNR {gain['psnr_gain_db']:+.2f} dB, SSIM {gain['ssim_gain']:+.4f}{ratios}"
        )
    return lines
