"""The report of cells whose limit ended them before profiling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training.study.cells import Cell
from training.study.report import write_report
from training.study.sources import STUDIES


def timed_row(name: str, images_per_s: float) -> dict[str, Any]:
    figures = {"step_ms": 1e3 / images_per_s, "images_per_s": images_per_s, "power_w": None, "loss": 0.5}
    cell = vars(Cell(name, "bf16" if name == "bf16" else "fp32"))
    parts: dict[str, Any] = {"ceilings": None, "operators": [], "calls": []}
    return {"status": "done", "cell": cell, "device": "GPU", "torch": "2", "batch": 1, "figures": figures, **parts}


def test_cells_that_were_only_timed_have_speed_ups_and_no_roofline(tmp_path: Path) -> None:
    write_report(STUDIES["pgn"], {"fp32": timed_row("fp32", 10.0), "bf16": timed_row("bf16", 25.0)}, tmp_path)
    text = (tmp_path / "study.md").read_text("utf-8")
    assert "| bf16 | 1 | 40 | 25 | 2.50× | not measured | not measured |" in text
    assert "| here: bf16 | GPU | 2.50× |" in text
    assert "## Operators" not in text
    assert not (tmp_path / "roofline.png").exists()
    assert json.loads((tmp_path / "study.json").read_text())["cells"]["bf16"]["figures"]["of_ceiling"] is None
