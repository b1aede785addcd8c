"""Decides whether OpenVINO computes a model in bf16 or in FP32, by measuring both once."""

from __future__ import annotations

import platform
from typing import Any

from engines.cpu.openvino_compiler import Compiler, run_request
from engines.cpu.openvino_faults import endless_in_bf16
from engines.files.record_cache import fingerprint
from engines.manifest import Manifest
from engines.parity.comparison import compare
from engines.parity.decisions import Decision, DecisionCache
from engines.parity.probes import probe_feeds, single_row_probe_feeds, smallest_and_largest_tiles

_DECISIONS_FORMAT = 1
"""The format of stored precision decisions; increased when the probes or the rule change, which discards older ones."""
_INT8_BAR_DB = 35.0
"""Least PSNR of bf16 beside INT8 layers: rounding alone leaves 37 to 44 dB, kernels with errors 26 dB."""


def choose_precision(compiler: Compiler, manifest: Manifest, cache: DecisionCache) -> Decision:
    """Choose bf16 where the processor has it and the outputs stay within the bars, else fp32.

    For an INT8 model the choice concerns the layers that are not INT8.
    """
    if not compiler.has_bf16:
        return Decision(precision="fp32", why="this processor has no bf16 instructions")
    key = fingerprint(
        {
            "format": _DECISIONS_FORMAT,
            "onnx": manifest.onnx_sha256,
            "bar_db": _bar_db(manifest),
            "levels": manifest.bf16_levels,
            "probes": next(manifest.size.tile_sizes()),
            "runtime": f"openvino {compiler.version}",
            "processor": compiler.processor,
            "machine": platform.machine(),
            "precision": "bf16",
        }
    )
    if (known := cache.get(key)) and known.precision in ("bf16", "fp32"):
        return known
    if layer := endless_in_bf16(compiler.read_model()):
        return Decision(precision="fp32", why=f"OpenVINO never finishes compiling {layer} in bf16")
    decision = _measure_bf16(compiler, manifest)
    cache.put(key, decision)
    return decision


def executed_precision(compiled: Any, manifest: Manifest, decision: Decision) -> tuple[str, str]:
    """Return the precision that the graph computes in, and why; `int8` only if compiled convolutions are INT8."""
    if manifest.precision != "int8":
        return decision.precision, decision.why
    kernels = [
        str(operation.get_rt_info()["primitiveType"].astype(str))
        for operation in compiled.get_runtime_model().get_ops()
        if operation.get_rt_info()["layerType"].astype(str) == "Convolution"
    ]
    int8 = sum(kernel.lower().endswith("_i8") for kernel in kernels)  # upper or lower case, depending on the processor
    why = f"{int8} of {len(kernels)} convolutions run INT8 kernels, the rest is {decision.precision}: {decision.why}"
    return ("int8" if int8 else decision.precision), why


def _bar_db(manifest: Manifest) -> float:
    return max(manifest.parity.bar_db, _INT8_BAR_DB if manifest.precision == "int8" else 0)


def _measure_bf16(compiler: Compiler, manifest: Manifest) -> Decision:
    bar_db, max_levels = _bar_db(manifest), manifest.bf16_levels
    reference, candidate = compiler.all_threads_request("fp32"), compiler.all_threads_request("bf16")
    probes = [*probe_feeds(manifest)]
    if max_levels is not None:  # LaMa's error in bf16 is six times as large at 512² as at 256²
        probes += single_row_probe_feeds(manifest, smallest_and_largest_tiles(manifest)[1:])
    verdict = compare(lambda feed: run_request(reference, feed), lambda feed: run_request(candidate, feed), probes)
    measured = f"{verdict}, the bar is {bar_db:g} dB"
    if not verdict.passes(bar_db):
        return Decision(precision="fp32", why=f"bf16 refused: {measured}")
    if max_levels is not None:
        measured += f"; fills differ by {verdict.levels:.2g} grey levels at most, the limit is {max_levels:.2g}"
        if verdict.levels > max_levels:
            return Decision(
                precision="fp32", why=f"bf16 refused: {measured} (fill_levels null in manifest.json allows it)"
            )
    return Decision(precision="bf16", why=f"bf16 against fp32: {measured}")
