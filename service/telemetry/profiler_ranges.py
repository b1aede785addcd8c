"""NVTX ranges for profilers such as Nsight Systems; they do nothing if the package nvtx is missing.

They are named after the stages: decode preprocess infer postprocess texture encode save.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

Range = Callable[..., AbstractContextManager[Any]]
_NO_RANGE = nullcontext()


@lru_cache(maxsize=1)
def _annotate() -> Range | None:
    try:
        annotate: Range = importlib.import_module("nvtx").annotate
    except ImportError:
        return None
    return annotate


def stage_range(stage: str, about: str = "") -> AbstractContextManager[Any]:
    """Mark a block as a stage of a request or batch (`about`); nearly free if no profiler is attached."""
    annotate = _annotate()
    return _NO_RANGE if annotate is None else annotate(f"{stage} {about}".rstrip(), domain="retouch")
