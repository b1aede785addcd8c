"""The roofline: FLOP/s against FLOP per byte, under the ceilings measured on the same device.

Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.profiling.ceilings import Ceilings
from training.profiling.stepping import StepFigures

_COLOURS = {"fp32": "tab:blue", "tf32": "tab:green", "bf16": "tab:orange", "fp16": "tab:red"}
_MAX_POINT_SIZE = 400.0


def draw_roofline(path: Path, title: str, ceilings: Ceilings, figures: Sequence[StepFigures]) -> None:
    """Plot a roof for each precision, a point for each group of calls and a star for the whole step, as PNG.

    A group is an operator with the shapes of its inputs; a point's area is its share of the step. Groups without
    counted FLOPs (norms, activations, copies) are not shown.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 -- slow to load

    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots()
    for precision in dict.fromkeys(found.precision for found in figures):
        _draw_roof(axes, precision, ceilings)
    for found in figures:
        _draw_points(axes, found)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="FLOP per byte that must be moved (inputs read once, outputs written once)",
        ylabel="FLOP/s",
        title=f"{title}; copies at {ceilings.bytes_per_s / 1e9:,.0f} GB/s",
    )
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=130)


def _draw_roof(axes: Any, precision: str, ceilings: Ceilings) -> None:
    top = ceilings.flop_per_s[precision]
    ridge = top / ceilings.bytes_per_s
    label = f"{precision}: products at {top / 1e12:.3g} TFLOP/s"
    axes.plot([ridge / 100, ridge, ridge * 30], [top / 100, top, top], color=_COLOURS[precision], label=label)


def _draw_points(axes: Any, found: StepFigures) -> None:
    counted = [calls for calls in found.calls if calls.flop and calls.device_s]
    whole = sum(calls.device_s for calls in found.calls)
    axes.scatter(
        [calls.flop / calls.bytes for calls in counted],
        [calls.flop / calls.device_s for calls in counted],
        s=[max(4.0, _MAX_POINT_SIZE * calls.device_s / whole) for calls in counted],
        color=_COLOURS[found.precision],
        alpha=0.5,
        linewidths=0,
    )
    if found.flop:
        moved = sum(calls.bytes for calls in found.calls)
        label = f"{found.label or found.precision}: whole step, {found.flop / found.step_s / 1e12:.3g} TFLOP/s"
        axes.scatter(
            found.flop / moved,
            found.flop / found.step_s,
            marker="*",
            s=160,
            color=_COLOURS[found.precision],
            edgecolors="black",
            label=label,
        )
