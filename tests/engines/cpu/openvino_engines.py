"""Opens OpenVINO's engine for tests; modules that import this one are skipped where OpenVINO is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.manifest import read_manifest

openvino: Any = pytest.importorskip("openvino", reason="OpenVINO is not installed; it needs no GPU")
needs_bf16 = pytest.mark.skipif(
    "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"),
    reason="this processor has no bf16 instructions",
)


def open_engine(directory: Path, cache: Path) -> OpenVinoEngine:
    """Open the engine of a model with one thread, so that it has no lanes."""
    return OpenVinoEngine(directory, read_manifest(directory), threads=1, cache_dir=cache)
