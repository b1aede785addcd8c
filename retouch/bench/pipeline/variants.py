"""The study's experiment: one way after another to get pictures through the pipeline, each with one thing more."""

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
    """How a folder of pictures is worked off.

    saving: `in line` waits for the disk after each picture, `behind` saves after the reply.
    together: pictures that are inside at once; 0 is as many as keep the largest batches full.
    batched: in batches as large as the settings allow, and not one by one.
    overlap: batches on the GPU at once; 0 computes from host arrays while the worker waits.
    graphs: each batch is launched as one CUDA graph, where the engine has them.
    """

    name: str
    saving: Saving = "behind"
    together: int = 1
    batched: bool = False
    overlap: int = 0
    graphs: bool = False


DEPTH = 3
VARIANTS = (
    Variant("sequential, saving in line", saving="in line"),
    Variant("saving off the path"),
    Variant("CV-CUDA preprocessing", overlap=1),
    Variant("overlapped streams", overlap=DEPTH, together=0),
    Variant("batched", overlap=DEPTH, together=0, batched=True),
    Variant("CUDA graphs", overlap=DEPTH, together=0, batched=True, graphs=True),
)
"""Each keeps what the one before has; the first is what the study began with."""


def variants_for(engine: Engine) -> list[tuple[Variant, str]]:
    """What can be measured with an engine, and of the rest why not (empty where it can).

    Without streams the batched row computes from host arrays; the last row is there once more without saving.
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
    silent = Variant("the same without saving", "none", last.together, last.batched, last.overlap, last.graphs)
    return [*rows, (silent, "")]


def why_no_overlap(engine: Engine) -> str:
    """Why the batches of an engine do not overlap on a GPU; empty where they do."""
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
    return Variant(variant.name, variant.saving, variant.together, variant.batched)
