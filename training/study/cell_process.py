"""`python -m training.study.cell_process REQUEST.json`: the process of one cell; writes the cell's JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engines.errors import RetouchError
from training.study.cells import Cell
from training.study.measuring import CellRequest, measure_cell


def read_request(path: Path) -> CellRequest:
    """Read a request that was written as JSON."""
    values = json.loads(path.read_text("utf-8"))
    return CellRequest(**{**values, "cell": Cell(**values["cell"]), "overrides": tuple(values["overrides"])})


def main() -> None:
    """Measure the cell; a failure is written in the place of the figures, by whichever process meets it."""
    request = read_request(Path(sys.argv[1]))
    try:
        found = measure_cell(request)
    except (RetouchError, RuntimeError) as error:  # torch raises RuntimeError where memory or a kernel is missing
        reason = " ".join(str(error).split())[:500] or type(error).__name__
        Path(request.result).write_text(json.dumps({"status": "failed", "reason": reason}) + "\n", "utf-8")
        raise SystemExit(reason) from error
    if found is not None:
        Path(request.result).write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
