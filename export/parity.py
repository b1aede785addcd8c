"""Compares graphs and programs with torch, on the generator's output scale before clamping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from engines.manifest import ParityCase, Precision
from export.errors import ParityFailed
from export.generators.family import Bars
from export.parity_inputs import ParityInput

Backend = Callable[[Mapping[str, NDArray[Any]]], NDArray[Any]]
FP32, FP16, INT8 = "onnx-fp32", "onnx-fp16", "onnx-int8"


def onnx_backend(path: Path) -> Backend:
    """Return a backend that runs a graph in ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns about every initializer that it moves
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leaves cores to torch between runs
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        output: NDArray[Any] = session.run(["output"], dict(feed))[0]
        return output

    return run


def torch_backend(reference: nn.Module) -> Backend:
    """Return a backend that runs a net on the feed's tensors, in their order."""

    def run(feed: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        with torch.inference_mode():
            output: NDArray[Any] = reference(*(torch.from_numpy(array) for array in feed.values())).numpy()
        return output

    return run


def compare(
    reference: Backend, backends: Mapping[str, Backend], samples: Iterable[ParityInput]
) -> tuple[ParityCase, ...]:
    """Compare every backend with the reference on every sample."""
    cases = []
    for sample in samples:
        wanted = reference(sample.feed)
        cases += [_compare_case(name, sample.name, wanted, run(sample.feed)) for name, run in backends.items()]
    return tuple(sorted(cases, key=lambda case: case.backend))


def _compare_case(backend: str, inputs: str, wanted: NDArray[Any], found: NDArray[Any]) -> ParityCase:
    finite = bool(np.isfinite(found).all() and np.isfinite(wanted).all())
    difference = np.nan_to_num(found.astype(np.float64) - wanted, nan=1e9, posinf=1e9, neginf=-1e9)
    error = float(np.mean(np.square(difference)))
    psnr = None if error == 0 else round(-10 * float(np.log10(error)), 2)
    return ParityCase(
        backend=backend, inputs=inputs, psnr_db=psnr, max_abs=float(np.abs(difference).max()), finite=finite
    )


def missed_bars(cases: Iterable[ParityCase], bars: Bars) -> list[str]:
    """Return a sentence for each case that misses its bar."""
    return [fault for case in cases if (fault := _missed_bar(case, bars))]


def _missed_bar(case: ParityCase, bars: Bars) -> str | None:
    where = f"{case.backend} on {case.inputs}"
    if not case.finite:
        return f"{where}: NaN or infinity"
    full = case.backend.endswith("fp32")
    if full and case.max_abs > bars.fp32_max_abs:
        return f"{where}: differs by {case.max_abs:.2g}, more than {bars.fp32_max_abs:g}"
    wanted = bars.fp32_psnr_db if full else bars.fp16_psnr_db
    if case.psnr_db is not None and case.psnr_db < wanted:
        return f"{where}: {case.psnr_db:.1f} dB, less than {wanted:g} dB"
    return None


def bars_text(bars: Bars, published: Precision) -> str:
    """Return the bars that the graphs of a model of that precision had to reach, in words."""
    full = f"FP32 graph at least {bars.fp32_psnr_db:g} dB, largest difference at most {bars.fp32_max_abs:g}"
    return f"bars: {full}; FP16 graph at least {bars.fp16_psnr_db:g} dB" if published == "fp16" else f"bar: {full}"


def fp16_missed(cases: Iterable[ParityCase], bars: Bars) -> str | None:
    """Return a note if FP16 misses its bar or the promised levels, so that FP32 is published instead; None otherwise.

    Some nets amplify the rounding of FP16 weights so much that their output is useless.
    """
    halves = [case for case in cases if case.backend == FP16]
    found = [fault for case in halves if (fault := _missed_bar(case, bars) or _missed_levels(case, bars))]
    more = f", and {len(found) - 1} more" if found[1:] else ""
    return f"{found[0]}{more}: published in FP32 instead" if found else None


def kept_promise(cases: Iterable[ParityCase], bars: Bars, published: str) -> tuple[Bars, list[str]]:
    """Return the bars with the `fill_levels` that the graph to be published keeps, and a note if they had to be raised.

    A net whose levels are larger may still meet the other bars. It is published, and CPUs compute it in FP32, which
    adds no further error.
    """
    farthest = max((case for case in cases if case.backend == published), key=lambda case: case.max_abs)
    missed = _missed_levels(farthest, bars)
    if missed is None:
        return bars, []
    kept = farthest.levels_kept
    return replace(bars, fill_levels=kept), [f"{missed}: the manifest promises {kept:g}, and CPUs compute in FP32"]


def _missed_levels(case: ParityCase, bars: Bars) -> str | None:
    if bars.fill_levels is None or case.levels <= bars.fill_levels:
        return None
    where = f"{case.backend} on {case.inputs}"
    return f"{where}: {case.levels:.2f} of 255 grey levels off, more than {bars.fill_levels:g}"


def require_parity(cases: Iterable[ParityCase], bars: Bars, published: str) -> None:
    """Check that the FP32 graph and the one to be published meet their bars.

    Raises:
        ParityFailed: a case misses its bar; the message lists every such case.
    """
    found = missed_bars((case for case in cases if case.backend in (FP32, published)), bars)
    if found:
        raise ParityFailed(
            f"nothing was published: {'; '.join(found)}. Check the options given and that the weights are trained: "
            "untrained ones amplify rounding"
        )
