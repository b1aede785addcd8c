"""Runs `retouch serve` with traces and metrics that can be switched while it runs, for telemetry.py.

    python -m benchmarks.load.switched_telemetry FIFO

Each line written to the FIFO is a command: `traced` (traces and metrics), `metrics` or `neither` switches telemetry;
`sent` sends the waiting spans. Disabled telemetry is skipped where the server itself would skip it: no request starts a
trace, or nothing is counted.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import Tracer
from prometheus_client import Counter, Histogram

from retouch.__main__ import main
from service.app import Service
from service.telemetry import tracing
from service.telemetry.metrics import Metrics


class Switch:
    """The switches for traces and metrics."""

    def __init__(self) -> None:
        self.traces = self.metrics = True
        self.tracer: Tracer | None = None

    def follow_commands(self, fifo: Path) -> None:
        """Read switch commands from a FIFO until the process ends."""
        while True:
            for line in fifo.read_text().splitlines():
                if line == "sent":
                    if self.tracer is not None:
                        self.tracer.span_processor.force_flush()
                else:
                    self.traces, self.metrics = line == "traced", line != "neither"


def install(switch: Switch) -> None:
    """Make the server consult the switch."""
    open_tracer = tracing.RequestTracer.__init__

    def tracer_if_on(service: Service) -> tracing.RequestTracer | None:
        return service.pipeline.tracer if switch.traces else None

    def opened(self: Any, tracer: Tracer, *more: Any) -> None:
        switch.tracer = tracer
        open_tracer(self, tracer, *more)

    Service.tracer = property(tracer_if_on)  # type: ignore[assignment,method-assign]
    tracing.RequestTracer.__init__ = opened  # type: ignore[method-assign, assignment]
    for kind, names in (
        (Metrics, ("request_done", "stages_done", "batch_done")),
        (Histogram, ("observe",)),
        (Counter, ("inc",)),
    ):
        for name in names:
            _count_if_on(switch, kind, name)


def _count_if_on(switch: Switch, kind: type, name: str) -> None:
    count = getattr(kind, name)

    def counted(self: Any, *values: Any, **more: Any) -> None:
        if switch.metrics:
            count(self, *values, **more)

    setattr(kind, name, counted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fifo", type=Path, help="FIFO to read the switch commands from")
    fifo = parser.parse_args().fifo
    switch = Switch()
    install(switch)
    threading.Thread(target=switch.follow_commands, args=(fifo,), daemon=True).start()
    sys.argv[1:] = ["serve"]
    main()
