"""The report of a run: percentiles, throughput, errors by code and time by stage, computed from observations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hdrh.histogram import HdrHistogram

from retouch.bench.load import NO_REPLY, Observation

Mode = Literal["open", "closed"]
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
_MAX_US = 3_600_000_000  # an hour
_SIGNIFICANT_FIGURES = 3
_METRIC = re.compile(r"(?P<name>[^;\s]+)\s*;(?:.*;)?\s*dur=(?P<duration>\d+(?:\.\d+)?)\s*(?:;.*)?")


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Milliseconds that requests spent in one stage, as reported by the server."""

    mean_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report of one run at one rate or concurrency."""

    mode: Mode
    level: float
    """Open loop: requests due per second. Closed loop: number of clients."""
    elapsed_s: float
    """Seconds from the start to the last reply."""
    requests: int
    ok: int
    ok_per_s: float
    latency_ms: dict[str, float]
    """p50, p90, p99, p99.9, mean and max latency of successful requests from their due time; empty if there are none.
    """
    errors: dict[str, int]
    """Number of errors by status and code: `503 overloaded`, `no reply unanswered`."""
    stages: dict[str, StageTimes]
    batch_sizes: dict[int, int]
    send_lag_p99_ms: float
    """Delay between due time and sending, 99th percentile; if it is large, the generator is the bottleneck."""

    @property
    def sent_per_s(self) -> float:
        """Requests sent per second, over the same time as `ok_per_s`; it varies because due times are random."""
        return self.requests / self.elapsed_s if self.elapsed_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for `--json`."""
        return asdict(self)


def summarise(mode: Mode, level: float, observations: list[Observation]) -> RunReport:
    """Compute the report of one run; a run without requests gives a report of zeros."""
    succeeded = [observation for observation in observations if 200 <= observation.reply.status < 300]
    elapsed_s = max((observation.done_s for observation in observations), default=0.0)
    return RunReport(
        mode=mode,
        level=level,
        elapsed_s=elapsed_s,
        requests=len(observations),
        ok=len(succeeded),
        ok_per_s=len(succeeded) / elapsed_s if elapsed_s else 0.0,
        latency_ms=_latency_percentiles_ms(observation.done_s - observation.due_s for observation in succeeded),
        errors=_count_errors(observations),
        stages=_stage_times(succeeded),
        batch_sizes=_batch_sizes(succeeded),
        send_lag_p99_ms=_histogram(
            observation.sent_s - observation.due_s for observation in observations
        ).get_value_at_percentile(99)
        / 1e3,
    )


def parse_server_timing(value: str) -> dict[str, float]:
    """Parse a Server-Timing header (W3C), such as `decode;dur=1.2, infer;dur=8`, into milliseconds by stage."""
    metrics = (_METRIC.fullmatch(metric.strip()) for metric in value.split(","))
    return {metric["name"]: float(metric["duration"]) for metric in metrics if metric}


def broken_limits(reports: Iterable[RunReport], over_p99_ms: float | None, *, on_errors: bool) -> list[str]:
    """Return one sentence for each limit that a run broke; empty if all runs pass."""
    broken = []
    for report in reports:
        name = f"{report.mode} loop at {report.level:g}"
        p99_ms = report.latency_ms.get("p99")
        if p99_ms is None:
            broken.append(f"{name}: no request succeeded")
        elif over_p99_ms is not None and p99_ms > over_p99_ms:
            broken.append(f"{name}: p99 {p99_ms:.1f} ms is over {over_p99_ms:g} ms")
        if on_errors and report.errors:
            broken.append(f"{name}: {sum(report.errors.values())} of {report.requests} requests failed")
    return broken


def _histogram(seconds: Iterable[float]) -> Any:
    histogram = HdrHistogram(1, _MAX_US, _SIGNIFICANT_FIGURES)
    for value in seconds:
        histogram.record_value(min(max(round(value * 1e6), 1), _MAX_US))
    return histogram


def _latency_percentiles_ms(seconds: Iterable[float]) -> dict[str, float]:
    histogram = _histogram(seconds)
    if not histogram.get_total_count():
        return {}
    percentiles = {name: histogram.get_value_at_percentile(at) / 1e3 for name, at in PERCENTILES.items()}
    return {**percentiles, "mean": histogram.get_mean_value() / 1e3, "max": histogram.get_max_value() / 1e3}


def _count_errors(observations: Iterable[Observation]) -> dict[str, int]:
    answers = (observation.reply for observation in observations if not 200 <= observation.reply.status < 300)
    names = (f"{'no reply' if a.status == NO_REPLY else a.status} {a.code}".rstrip() for a in answers)
    return dict(Counter(names).most_common())


def _stage_times(succeeded: Iterable[Observation]) -> dict[str, StageTimes]:
    by_stage: defaultdict[str, list[float]] = defaultdict(list)
    for observation in succeeded:
        for stage, duration_ms in parse_server_timing(observation.reply.server_timing).items():
            by_stage[stage].append(duration_ms)
    return {
        stage: StageTimes(
            mean_ms=sum(durations) / len(durations),
            p99_ms=_histogram(ms / 1e3 for ms in durations).get_value_at_percentile(99) / 1e3,
        )
        for stage, durations in by_stage.items()
    }


def _batch_sizes(succeeded: Iterable[Observation]) -> dict[int, int]:
    sizes = Counter(
        int(observation.reply.batch_size) for observation in succeeded if observation.reply.batch_size.isdigit()
    )
    return dict(sorted(sizes.items()))
