"""What traces and metrics cost: Retouch traced at 10 %, with metrics alone, and with neither, in one interleaved run.

    .venv/bin/python benchmarks/telemetry.py [--json FILE] [--rounds 20] [--seconds 3] [--side 256]

Three servers run all the time; in each round each is driven for some seconds in a closed loop, in an order that turns,
so that a busy machine slows all of them. The engine is the fake one and takes no time, nothing is saved: the rest is
what telemetry is added to. A collector on loopback takes the spans and counts them. Bars: traces under 2 % of the
throughput, metrics under 1 %. Throughput is the median over the rounds of the ratio of neighbours; beside it stands the
processor time of a request in the server, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from inputs import inpaint_body
from otlp_receiver import OtlpReceiver
from processes import Server, retouch, retouch_is_ready
from raw_http import encode
from raw_load import Target, drive

WITHOUT = "--serve-without-metrics"
PAIRS = (("traces", "traced", "metrics"), ("metrics", "metrics", "neither"))
BARS = {"traces": 0.02, "metrics": 0.01}


@dataclass
class Contender:
    """One server and what was seen of it, a value a round."""

    server: Server
    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def target(self, request: bytes) -> Target:
        """As eight clients."""
        return Target(self.server.port, request, connections=8)

    def measure(self, request: bytes, seconds: float) -> None:
        """Drive it."""
        process = psutil.Process(self.server.process.pid)
        before = process.cpu_times()
        answers = drive(self.target(request), seconds)
        after = process.cpu_times()
        assert set(answers.statuses) == {200}, answers.statuses
        spent = after.user + after.system - before.user - before.system
        self.per_s.append(answers.per_s)
        self.cpu_ms.append(spent / answers.statuses[200] * 1e3)


def serve_without_metrics() -> None:
    """`retouch serve`, whose series count nothing."""
    from prometheus_client import Counter, Histogram  # noqa: PLC0415

    for series in (Counter, Histogram):
        series.labels = lambda self, *_, **__: self  # type: ignore[method-assign]
    Counter.inc = lambda *_: None  # type: ignore[method-assign]
    Histogram.observe = lambda *_: None  # type: ignore[method-assign]
    from retouch.__main__ import main  # noqa: PLC0415

    sys.argv[1:] = ["serve"]
    main()


def start(stack: ExitStack, folder: Path, name: str, collector: str, options: argparse.Namespace) -> Contender:
    """The server of that name, ready."""
    folder = folder / name
    folder.mkdir()
    settings: dict[str, object] = {"save": "false", "log_level": "warning"}
    if name == "traced":
        settings |= {"otlp_endpoint": collector, "trace_ratio": options.ratio}
    command = (__file__, WITHOUT) if name == "neither" else ("-m", "retouch", "serve")
    server = stack.enter_context(retouch(folder, fake_batch_ms=0, command=command, **settings))
    asyncio.run(server.until_ready(retouch_is_ready, 120))
    return Contender(server)


def overhead(more: list[float], less: list[float]) -> float:
    """How much more each round, in the median."""
    return statistics.median(a / b for a, b in zip(more, less, strict=True)) - 1


def measure(options: argparse.Namespace) -> tuple[dict[str, Contender], int]:
    """Every server's rounds, and how many spans the collector received."""
    request = encode("/v1/inpaint", *inpaint_body(options.side))
    names = ["traced", "metrics", "neither"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        receiver = stack.enter_context(OtlpReceiver())
        contenders = {name: start(stack, folder, name, receiver.url, options) for name in names}
        for contender in contenders.values():
            drive(contender.target(request), options.seconds)
        for number in range(options.rounds):
            turn = number % 3
            for name in names[turn:] + names[:turn]:
                contenders[name].measure(request, options.seconds)
        time.sleep(6)  # the last spans leave after five seconds
        return contenders, len(receiver.spans)


def report(contenders: dict[str, Contender], spans: int, options: argparse.Namespace) -> dict[str, object]:
    """Print the table; the figures."""
    print(f"{'':10}{'requests/s':>12}{'CPU ms':>9}   medians of {options.rounds} rounds, {options.side}²")
    for name, one in contenders.items():
        print(f"{name:10}{statistics.median(one.per_s):12.1f}{statistics.median(one.cpu_ms):9.3f}")
    figures: dict[str, object] = {"spans": spans, "load": psutil.getloadavg()[1]}
    for what, more, less in PAIRS:
        slower = -overhead(contenders[more].per_s, contenders[less].per_s)
        dearer = overhead(contenders[more].cpu_ms, contenders[less].cpu_ms)
        figures |= {f"{what}_throughput": slower, f"{what}_cpu": dearer}
        print(f"{what:8} cost {slower:6.2%} of the throughput, {dearer:6.2%} more CPU a request (bar {BARS[what]:.0%})")
    print(f"the collector received {spans} spans; load of the machine {figures['load']}")
    return {**figures, "rounds": {name: {"per_s": one.per_s, "cpu_ms": one.cpu_ms} for name, one in contenders.items()}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each server in each round")
    parser.add_argument("--side", type=int, default=256, help="of the pictures, in pixels")
    parser.add_argument("--ratio", type=float, default=0.1, help="share of requests that are traced")
    options = parser.parse_args()
    contenders, spans = measure(options)
    assert spans, "nothing was traced"
    figures = report(contenders, spans, options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    if sys.argv[1:] == [WITHOUT]:
        serve_without_metrics()
    else:
        main()
