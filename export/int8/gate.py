"""The gate of INT8 graphs: figures on pictures that were not used for calibration, and their bars. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engines.manifest import QuantisationFigures, QuantisedLayer
from export.errors import QuantisationRefused

MIN_PICTURES = 100
MEAN_DB, WORST_DB = 35.0, 28.0
"""Least PSNR in the holes against FP32, on average and of the worst picture."""
MAX_LPIPS = 1.02
"""Largest LPIPS to the truth, relative to that of FP32."""
_NAMED = 5


def require_quality(figures: QuantisationFigures, layers: Sequence[QuantisedLayer]) -> None:
    """Check figures against the bars.

    Args:
        figures: the figures of the graph to be published.
        layers: its layers for the message, the costliest first.

    Raises:
        QuantisationRefused: a bar is missed; the message says which, by how much, and what to do.
    """
    faults = [
        (figures.pictures < MIN_PICTURES, f"{figures.pictures} pictures, fewer than {MIN_PICTURES}"),
        (figures.psnr_db < MEAN_DB, f"{figures.psnr_db:.1f} dB on average, less than {MEAN_DB:g}"),
        (figures.worst_psnr_db < WORST_DB, f"{figures.worst_psnr_db:.1f} dB at worst, less than {WORST_DB:g}"),
        (
            figures.lpips > MAX_LPIPS * figures.lpips_fp32,
            f"LPIPS {figures.lpips:.4f}, more than {MAX_LPIPS:g} × {figures.lpips_fp32:.4f}",
        ),
    ]
    if missed := [text for is_missed, text in faults if is_missed]:
        raise QuantisationRefused(refusal("; ".join(missed), layers))


def refusal(why: str, layers: Sequence[QuantisedLayer]) -> str:
    """Return the message of a refusal, with the layers that cost most."""
    costly = ", ".join(f"{layer.name} ({layer.alone_db:.1f} dB alone)" for layer in layers[:_NAMED])
    return (
        f"nothing was published: in INT8 {why}. What costs most: {costly}. "
        "Calibrate on more pictures, of the kind that will be filled, or publish with --precision fp16"
    )
