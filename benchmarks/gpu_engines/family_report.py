"""Reports of benchmarks/gpu_engines/families.py as Markdown tables and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class Row:
    """The measurement of one generator at one size and batch; None where nothing could be measured."""

    name: str
    size: str
    batch: int
    eager_ms: float | None = None
    graph_ms: float | None = None
    compiled_ms: float | None = None
    compile_s: float | None = None
    psnr_db: float | None = None
    """PSNR in dB of the first compiled output against FP32; None if not measured or identical."""
    finite: bool | None = None
    spread: float | None = None
    """Standard deviation of the FP32 output; if it is almost 0, the PSNR says little."""
    error: str = ""

    @property
    def images_per_s(self) -> float | None:
        """Images per second of the compiled form."""
        return None if self.compiled_ms is None else self.batch / self.compiled_ms * 1e3


class Reference(NamedTuple):
    """Earlier figures of one H200: batch 1 in ms, batch 32 in images/s."""

    graph_ms: float
    compiled_ms: float
    graph_per_s: float
    compiled_per_s: float


REFERENCE: Mapping[tuple[str, str], Reference] = {
    ("pix2pix unet_256, batch norm", "256×256"): Reference(0.43, 0.30, 16200, 21500),
    ("pix2pix resnet_9blocks, instance norm", "256×256"): Reference(1.58, 0.60, 990, 3100),
    ("pconv, 7 levels", "256×256"): Reference(0.77, 0.38, 4600, 10300),
    ("pconv, 7 levels", "512×512"): Reference(1.34, 0.66, 1220, 2700),
}
_REPEATED = " (cudnn.benchmark)"
_COLOURS = {1: "#9ecae1", 8: "#4292c6", 32: "#08519c"}


def as_markdown(rows: Sequence[Row], facts: Mapping[str, object]) -> str:
    """Format the host, all rows, and the comparison with the reference figures."""
    host = ", ".join(f"{name} {value}" for name, value in facts.items())
    head = "| generator | size | batch | eager ms | eager, graph ms | compiled ms | images/s | PSNR dB | compile s |"
    lines = ["", host, "", head, "|---|---|---|---|---|---|---|---|---|", *map(_line, rows)]
    compared = [line for row in rows if (line := _against_reference(row))]
    if compared:
        head = "| generator | size | batch | | measured | reference | speed, measured/reference |"
        lines += ["", head, "|---|---|---|---|---|---|---|", *compared]
    return "\n".join(lines)


def _line(row: Row) -> str:
    start = f"| {row.name} | {row.size} | {row.batch} |"
    if row.error:
        return f"{start} {row.error} | | | | | |"
    psnr = "identical" if row.psnr_db is None else f"{row.psnr_db:.1f}"
    cells = (
        *map(_ms, (row.eager_ms, row.graph_ms, row.compiled_ms)),
        f"{row.images_per_s or 0:,.0f}",
        psnr if row.finite else "**not finite**",
        f"{row.compile_s:g}",
    )
    return f"{start} {' | '.join(cells)} |"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _against_reference(row: Row) -> str:
    """Format both forms at batch 1 in ms and batch 32 in images/s; ratios above 1 are faster than the reference."""
    stated = REFERENCE.get((row.name.removesuffix(_REPEATED), row.size))
    if stated is None or row.batch not in (1, 32) or row.graph_ms is None or row.compiled_ms is None:
        return ""
    lines = []
    for form, ms, stated_ms, stated_per_s in (
        ("graph", row.graph_ms, stated.graph_ms, stated.graph_per_s),
        ("compiled", row.compiled_ms, stated.compiled_ms, stated.compiled_per_s),
    ):
        per_s = row.batch / ms * 1e3
        ratio = stated_ms / ms if row.batch == 1 else per_s / stated_per_s
        values = (f"{ms:.3g} ms", f"{stated_ms} ms") if row.batch == 1 else (f"{per_s:,.0f}/s", f"{stated_per_s:,}/s")
        lines.append(f"| {row.name} | {row.size} | {row.batch} | {form} | {values[0]} | {values[1]} | {ratio:.2f} |")
    return "\n".join(lines)


def save_plot(rows: Sequence[Row], path: Path, title: str) -> str:
    """Plot images/s of the compiled form as bars, with a colour for each batch size; returns a message to print."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 -- the tables need no matplotlib
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        return f"no picture: {error}; pip install matplotlib"
    measured = [row for row in rows if row.images_per_s and _REPEATED not in row.name]
    labels = list(dict.fromkeys(f"{row.name}, {row.size}" for row in measured))
    batches = sorted({row.batch for row in measured})
    figure = Figure(figsize=(11, 1.5 + 0.55 * len(labels)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    height = 0.8 / max(1, len(batches))
    for index, batch in enumerate(batches):
        of_batch = [row for row in measured if row.batch == batch]
        places = [
            labels.index(f"{row.name}, {row.size}") + (index - (len(batches) - 1) / 2) * height for row in of_batch
        ]
        speeds = [row.images_per_s or 0 for row in of_batch]
        bars = axes.barh(places, speeds, height, label=f"batch {batch}", color=_COLOURS.get(batch))
        axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], padding=3, fontsize=7)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="images/s, FP16, compiled, engine alone", title=title)
    axes.margins(x=0.1)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return f"wrote {path}"
