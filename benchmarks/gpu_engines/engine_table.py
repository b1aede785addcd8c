"""Formats the measurements of compare.py as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REFERENCE_MS = {
    ("unet_256", 1): 0.30,
    ("unet_256", 32): 32 / 21.5,
    ("resnet_9blocks", 1): 0.60,
    ("resnet_9blocks", 32): 32 / 3.1,
    ("pconv_256", 1): 0.38,
    ("pconv_256", 32): 32 / 10.3,
    ("pconv_512", 1): 0.66,
    ("pconv_512", 32): 32 / 2.7,
}
"""Milliseconds per batch with torch.compile, FP16, on one H200, measured before this project began."""

Row = dict[str, Any]


def as_markdown(rows: Sequence[Row]) -> str:
    """Format the times of every engine, their parity, and TensorRT's slowest layers."""
    parts = [_times(rows), _against_public(rows), _quality(rows), _slower(rows)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _times(rows: Sequence[Row]) -> list[str]:
    found = {(row["model"], row["engine"], row["batch"]): row for row in rows if "batch" in row}
    cells = sorted({(row["model"], row["batch"]) for row in found.values()})
    lines = [
        "| model | batch | eager, graph ms | inductor ms | of reference | ONNX Runtime ms | TensorRT ms | images/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model, batch in cells:
        eager = found.get((model, "eager", batch), {})
        ms = {engine: found.get((model, engine, batch), {}).get("ms") for engine in ("inductor", "onnxrt-cuda", "trt")}
        wanted, fastest = REFERENCE_MS.get((model, batch)), min((value for value in ms.values() if value), default=None)
        share = f"{wanted / ms['inductor']:.2f}" if wanted and ms["inductor"] else "–"
        rate = f"{batch / fastest * 1e3:,.0f}" if fastest else "–"
        shown = [_shown(eager.get("ms")), _shown(eager.get("graph_ms"))]
        lines.append(
            f"| {model} | {batch} | {', '.join(shown)} | {_shown(ms['inductor'])} | {share} | "
            f"{_shown(ms['onnxrt-cuda'])} | {_shown(ms['trt'])} | {rate} |"
        )
    return lines


def _against_public(rows: Sequence[Row]) -> list[str]:
    """Format the public nets' times, and the speed of the fastest engine relative to them."""
    public: dict[tuple[str, int], Row] = {}
    ours: dict[tuple[str, int], float] = {}
    for row in rows:
        key = (row["model"], row.get("batch", 0))
        if row["engine"] == "public" and "batch" in row:
            public.setdefault(key, {}).update(row)
        elif "ms" in row:
            ours[key] = min(row["ms"], row.get("graph_ms") or row["ms"], ours.get(key, row["ms"]))
    lines = ["| public net | batch | FP32 ms, traced | FP16 ms | fastest engine ms, images/s | times as fast as each |"]
    lines.append("|---|---|---|---|---|---|")
    for key, row in sorted(public.items()):
        times, best = [row.get(name) for name in ("ms", "traced_ms", "half_ms")], ours.get(key)
        rate = "–" if best is None else f"{best:.3g}, {key[1] / best * 1e3:,.0f}"
        ratios = ", ".join("–" if best is None or ms is None else f"{ms / best:.2f}" for ms in times)
        shown = [_shown(ms) for ms in times]
        lines.append(f"| {key[0]} | {key[1]} | {shown[0]}, {shown[1]} | {shown[2]} | {rate} | {ratios} |")
    return lines if public else []


def _quality(rows: Sequence[Row]) -> list[str]:
    lines = ["| model | engine | compiled, opened in s | PSNR dB | against |", "|---|---|---|---|---|"]
    for row in rows:
        if "opened_s" in row:
            psnr = row["psnr_db"] if row["finite"] else "not finite"
            seconds = f"{row.get('cold_s', '–')}, {row['opened_s']}"
            lines.append(f"| {row['model']} | {row['engine']} | {seconds} | {psnr} | {row['against']} |")
        elif "error" in row:
            lines.append(f"| {row['model']} | {row['engine']} | {row['error']} | – | – |")
    return lines


def _slower(rows: Sequence[Row]) -> list[str]:
    """Format the layer profiles of batches that torch.compile computes faster."""
    compiled = {(row["model"], row["batch"]): row["ms"] for row in rows if row["engine"] == "inductor" and "ms" in row}
    lines = []
    for row in rows:
        if row["engine"] == "trt" and "slowest" in row and row["ms"] > compiled.get((row["model"], row["batch"]), 1e9):
            lines.append(f"{row['model']}, batch {row['batch']}: {row['layers']} layers, {row['layers_ms']} ms")
            lines += [f"    {ms:.4f} {name}" for name, ms in row["slowest"][:8]]
    return lines


def _shown(ms: float | None) -> str:
    return "–" if ms is None else f"{ms:.3g}"
