"""Measures the cost of telemetry: traces at 10 %, metrics alone, and neither, in one interleaved run.

    .venv/bin/python -m benchmarks.load.telemetry [--json FILE] [--starts 3] [--rounds 12] [--seconds 3] [--side 256]

One server is loaded in a closed loop for some seconds at a time and switched between the states after each
(switched_telemetry.py), in a rotating order, so that a busy machine slows all states. One server is used because two
processes of the same program differ by some percent for their whole life, more than the effect that is measured. After
some rounds another server is started. The fake engine takes no time and nothing is saved, so telemetry is a large part
of the cost. A collector on loopback keeps the spans and decodes them afterwards; it runs in this process, the load in
another, and both share the machine with the server, so the collector's CPU time is printed too. Bars: traces under 2 %
of the throughput, metrics under 1 %. A cost is the mean ratio of consecutive rounds without the highest and lowest
tenth, with its standard error; the CPU time of a request in the server, which other work affects less, is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.harness.inputs import inpaint_body
from benchmarks.harness.otlp_receiver import OtlpReceiver
from benchmarks.harness.processes import Server, retouch, retouch_is_ready
from benchmarks.harness.raw_http import encode
from benchmarks.harness.raw_load import Target, drive

STATES = ["traced", "metrics", "neither"]
PAIRS = (("traces", "traced", "metrics"), ("metrics", "metrics", "neither"))
BARS = {"traces": 0.02, "metrics": 0.01}
_SENT_IN_S = 0.2


@dataclass
class Measurements:
    """The measurements of one state of the server, one value per round."""

    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def measure(self, server: Server, fifo: Path, request: bytes, seconds: float) -> None:
        """Load the server for one round; its spans are sent before the CPU time is read."""
        process = psutil.Process(server.process.pid)
        before = process.cpu_times()
        answers = drive(target(server, request), seconds)
        fifo.write_text("sent\n")
        time.sleep(_SENT_IN_S)
        after = process.cpu_times()
        assert set(answers.statuses) == {200}, answers.statuses
        spent = after.user + after.system - before.user - before.system
        self.per_s.append(answers.per_s)
        self.cpu_ms.append(spent / answers.statuses[200] * 1e3)


def target(server: Server, request: bytes) -> Target:
    """Return a target of eight clients."""
    return Target(server.port, request, connections=8)


def start(stack: ExitStack, folder: Path, collector: str, options: argparse.Namespace) -> tuple[Server, Path]:
    """Start a server; returns it when ready, with the FIFO that switches it."""
    fifo = folder / "switch"
    os.mkfifo(fifo)
    command = ("-m", "benchmarks.load.switched_telemetry", str(fifo))
    settings: dict[str, object] = {"save": "false", "log_level": "warning"}
    settings |= {"otlp_endpoint": collector, "trace_ratio": options.ratio}
    server = stack.enter_context(retouch(folder, fake_batch_ms=0, command=command, **settings))
    asyncio.run(server.until_ready(retouch_is_ready, 120))
    return server, fifo


def overhead(more: list[float], less: list[float]) -> tuple[float, float]:
    """Return the relative overhead between neighbouring rounds: trimmed mean (10 %) and standard error."""
    ratios = sorted(a / b - 1 for a, b in zip(more, less, strict=True))
    left_out = len(ratios) // 10
    kept = ratios[left_out : len(ratios) - left_out]
    return statistics.fmean(kept), statistics.stdev(kept) / len(kept) ** 0.5


def measure(options: argparse.Namespace) -> tuple[dict[str, Measurements], OtlpReceiver]:
    """Run the rounds of each state; returns them and the receiver with its spans."""
    request = encode("/v1/inpaint", *inpaint_body(options.side))
    measurements = {name: Measurements() for name in STATES}
    with OtlpReceiver() as receiver:
        for _ in range(options.starts):
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                server, fifo = start(stack, folder, receiver.url, options)
                drive(target(server, request), 2 * options.seconds)
                for number in range(options.rounds):
                    first = number % len(STATES)
                    for name in STATES[first:] + STATES[:first]:
                        fifo.write_text(f"{name}\n")
                        measurements[name].measure(server, fifo, request, options.seconds)
        return measurements, receiver


def report(
    measurements: dict[str, Measurements], receiver: OtlpReceiver, options: argparse.Namespace
) -> dict[str, object]:
    """Print the table and return the figures."""
    what = f"medians of {options.rounds} rounds after each of {options.starts} starts, {options.side}²"
    print(f"{'':10}{'requests/s':>12}{'CPU ms':>9}   {what}")
    for name, one in measurements.items():
        print(f"{name:10}{statistics.median(one.per_s):12.1f}{statistics.median(one.cpu_ms):9.3f}")
    spans, collector_s = len(receiver.spans), receiver.cpu_s
    assert spans, "nothing was traced"
    figures: dict[str, object] = {"spans": spans, "collector_cpu_s": collector_s, "load": psutil.getloadavg()[1]}
    for what, more, less in PAIRS:
        faster, slower_error = overhead(measurements[more].per_s, measurements[less].per_s)
        dearer, dearer_error = overhead(measurements[more].cpu_ms, measurements[less].cpu_ms)
        figures |= {f"{what}_throughput": -faster, f"{what}_throughput_error": slower_error}
        figures |= {f"{what}_cpu": dearer, f"{what}_cpu_error": dearer_error}
        print(
            f"{what:8} cost {-faster:.2%} ± {slower_error:.2%} of the throughput, {dearer:.2%} ± {dearer_error:.2%} "
            f"more CPU a request (bar {BARS[what]:.0%})"
        )
    took = f"in {collector_s:.2f} s of processor time ({collector_s / spans * 1e6:.1f} us a span)"
    print(f"the collector received {spans} spans {took}; load of the machine {figures['load']}")
    return {
        **figures,
        "rounds": {name: {"per_s": one.per_s, "cpu_ms": one.cpu_ms} for name, one in measurements.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--starts", type=int, default=3, help="starts of the server")
    parser.add_argument("--rounds", type=int, default=12, help="rounds after each start")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each state in each round")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument("--ratio", type=float, default=0.1, help="share of requests that are traced")
    options = parser.parse_args()
    measurements, receiver = measure(options)
    figures = report(measurements, receiver, options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
