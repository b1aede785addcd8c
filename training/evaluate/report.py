"""Averages the figures of all pictures by coverage band, and formats gains over the baselines and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

OVERALL = "all"


class Figures(NamedTuple):
    """The figures of one picture by one painter, or the means of several."""

    psnr_db: float
    ssim: float
    l1: float
    """In the hole; over the whole picture where there is none."""
    lpips: float | None


class CaseFigures(NamedTuple):
    """The figures of one picture by all painters."""

    name: str
    band: str
    coverage: float
    by_painter: dict[str, Figures]


def summarise(measured: Sequence[CaseFigures]) -> dict[str, dict[str, dict[str, float]]]:
    """Average the figures over pictures: by painter, then by band of coverage, and over all bands under the key `all`.

    Each entry maps the names of figures to their means, and `pictures` to the number of pictures.
    """
    bands = [OVERALL, *sorted({row.band for row in measured} - {OVERALL})]
    return {
        painter: {band: _means([row for row in measured if band in (OVERALL, row.band)], painter) for band in bands}
        for painter in measured[0].by_painter
    }


def _means(rows: Sequence[CaseFigures], painter: str) -> dict[str, float]:
    means: dict[str, float] = {"pictures": len(rows)}
    for name in Figures._fields:
        values = [value for row in rows if (value := getattr(row.by_painter[painter], name)) is not None]
        if values:
            means[name] = round(sum(values) / len(values), 5)
    return means


def gains(summary: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Compare the model with each baseline over all pictures: PSNR and SSIM as differences, LPIPS and L1 as ratios."""
    model = summary["model"][OVERALL]
    found = {}
    for painter in (name for name in summary if name != "model"):
        theirs = summary[painter][OVERALL]
        found[painter] = {
            "psnr_gain_db": round(model["psnr_db"] - theirs["psnr_db"], 4),
            "ssim_gain": round(model["ssim"] - theirs["ssim"], 5),
            **{
                f"{name}_ratio": round(model[name] / theirs[name], 4)
                for name in ("lpips", "l1")
                if name in model and theirs.get(name)
            },
        }
    return found


def table(report: Mapping[str, Any]) -> Table:
    """Make a table with a row for each band and painter."""
    figures: Mapping[str, Mapping[str, Mapping[str, float]]] = report["figures"]
    model = report["model"]
    shown = Table(title=f"{model['name']}, {model['engine']} {model['precision']}", caption=report["protocol"]["data"])
    for column in ("coverage", "pictures", "painter", "PSNR dB", "SSIM", "LPIPS", "L1"):
        shown.add_column(column, justify="left" if column in ("coverage", "painter") else "right")
    bands = list(figures["model"])
    for band in [*bands[1:], bands[0]]:
        for painter, by_band in figures.items():
            row = by_band[band]
            shown.add_row(
                band,
                f"{row['pictures']:g}",
                painter,
                f"{row['psnr_db']:.2f}",
                f"{row['ssim']:.4f}",
                f"{row['lpips']:.4f}" if "lpips" in row else "-",
                f"{row['l1']:.4f}",
            )
        shown.add_section()
    return shown


def gain_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each baseline."""
    lines = []
    for painter, gain in report["gains"].items():
        ratios = "".join(
            f", {name.upper()} × {gain[f'{name}_ratio']:.3f}" for name in ("lpips", "l1") if f"{name}_ratio" in gain
        )
        lines.append(
            f"model against {painter}: PSNR {gain['psnr_gain_db']:+.2f} dB, SSIM {gain['ssim_gain']:+.4f}{ratios}"
        )
    return lines
