"""The variants of the pipeline that are compared, each with one more optimisation than the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.base import Engine
from engines.errors import EngineUnavailable
from service.devices.gpu import StreamEngine
from service.devices.gpu_cvcuda import load_cvcuda

Saving = Literal["in line", "behind", "none"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A configuration of the pipeline.

    saving: `in line` waits for the disk after each picture, `behind` saves after the reply, `none` does not save.
    together: pictures in the pipeline at once; 0 means enough to keep the largest batches full.
    batched: whether batches may be as large as the settings allow, instead of one picture each.
    overlap: batches on the GPU at once; 0 computes from host arrays while the device worker waits.
    graphs: whether each batch is launched as one CUDA graph, if the engine supports it.
    """

    name: str
    saving: Saving = "behind"
    concurrency: int = 1
    batched: bool = False
    overlap: int = 0
    graphs: bool = False


DEPTH = 3
VARIANTS = (
    Variant("sequential, saving in line", saving="in line"),
    Variant("saving off the path"),
    Variant("CV-CUDA preprocessing", overlap=1),
    Variant("overlapped streams", overlap=DEPTH, concurrency=0),
    Variant("batched", overlap=DEPTH, concurrency=0, batched=True),
    Variant("CUDA graphs", overlap=DEPTH, concurrency=0, batched=True, graphs=True),
)
"""The variants in order; each adds to the one before, and the first is the baseline."""


def variants_for(engine: Engine) -> list[tuple[Variant, str]]:
    """Pair each variant with the reason why it cannot be measured with this engine; empty if it can.

    Without CUDA streams the batched variant computes from host arrays. The last variant is repeated without saving.
    """
    overlap = why_no_overlap(engine)
    graphs = overlap or ("" if hasattr(engine, "use_graphs") else f"{engine.name} has no graphs to leave out")
    rows = []
    for variant in VARIANTS:
        if variant.graphs:
            rows.append((variant, graphs))
        elif variant.batched:
            rows.append((_without_streams(variant) if overlap else variant, ""))
        else:
            rows.append((variant, overlap if variant.overlap else ""))
    last = next(variant for variant, reason in reversed(rows) if not reason)
    unsaved = Variant("the same without saving", "none", last.concurrency, last.batched, last.overlap, last.graphs)
    return [*rows, (unsaved, "")]


def why_no_overlap(engine: Engine) -> str:
    """Return the reason why an engine's batches do not overlap on a GPU; empty if they do."""
    if not engine.device.startswith("cuda"):
        return f"{engine.name} runs on the {engine.device.upper()}"
    if not isinstance(engine, StreamEngine):
        return f"{engine.name} computes from host arrays"
    try:
        load_cvcuda()
    except EngineUnavailable as error:
        return str(error)
    return ""


def _without_streams(variant: Variant) -> Variant:
    return Variant(variant.name, variant.saving, variant.concurrency, variant.batched)
