"""`python -m training.study.cell_process REQUEST.json`: the process of one cell; writes the cell's JSON."""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import time
from pathlib import Path

from training.study.cells import Cell
from training.study.measuring import CellRequest, Row, measure_cell


def read_request(path: Path) -> CellRequest:
    """Read a request that was written as JSON."""
    values = json.loads(path.read_text("utf-8"))
    return CellRequest(**{**values, "cell": Cell(**values["cell"]), "overrides": tuple(values["overrides"])})


def main() -> None:
    """Measure the cell; on failure write the reason instead of the figures.

    On SIGTERM, which ends a cell at its time limit, the stack of each thread is printed first.
    """
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
    request, started = read_request(Path(sys.argv[1])), time.monotonic()
    result = Path(request.result)

    def keep(row: Row) -> None:
        """Write the row atomically, because the process may be killed at any time."""
        partial = result.with_suffix(".partial")
        partial.write_text(json.dumps(row, indent=1) + "\n", "utf-8")
        partial.replace(result)

    def notify(line: str) -> None:
        print(f"{request.cell.name}, {time.monotonic() - started:.1f} s: {line}", file=sys.stderr, flush=True)  # noqa: T201

    try:
        measure_cell(request, keep, notify)
    except Exception as error:
        if not result.exists():  # figures stay if only profiling failed
            reason = " ".join(str(error).split())[:500] or type(error).__name__
            keep({"status": "failed", "reason": reason})
        raise


if __name__ == "__main__":
    main()
