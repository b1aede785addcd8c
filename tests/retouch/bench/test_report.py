from __future__ import annotations

import json

import pytest

from retouch.bench.load import NO_REPLY, Observation, ServerReply
from retouch.bench.report import StageTimes, broken_limits, parse_server_timing, summarise


def ok(due_s: float, latency_s: float, *, lag_s: float = 0.0, infer_ms: float = 8.0, batch: str = "4") -> Observation:
    reply = ServerReply(200, server_timing=f"decode;dur=1.0, infer;dur={infer_ms}", batch_size=batch)
    return Observation(due_s, due_s + lag_s, due_s + latency_s, reply)


def failed(due_s: float, status: int, code: str) -> Observation:
    return Observation(due_s, due_s, due_s + 0.001, ServerReply(status, code))


def test_percentiles_are_of_the_latency_from_the_due_time() -> None:
    observation = [ok(0.01 * number, (number + 1) / 1000) for number in range(1000)]
    latency_ms = summarise("open", 100, observation).latency_ms
    expected = {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000, "mean": 500.5}
    assert latency_ms == pytest.approx(expected, rel=2e-3)


def test_throughput_counts_what_succeeded_until_the_last_reply() -> None:
    report = summarise("open", 10, [ok(0.0, 0.1), ok(1.0, 1.0), failed(3.9, 503, "overloaded")])
    assert (report.requests, report.ok) == (3, 2)
    assert report.elapsed_s == pytest.approx(3.901)
    assert report.ok_per_s == pytest.approx(2 / 3.901)


def test_errors_are_counted_by_status_and_code_and_not_timed() -> None:
    observation = [
        ok(0.0, 0.1),
        failed(0.1, 503, "overloaded"),
        failed(0.2, 503, "overloaded"),
        failed(0.3, 503, "spool_full"),
        failed(0.4, 502, ""),
        Observation(0.5, 0.5, 99.0, ServerReply(NO_REPLY, "unanswered")),
    ]
    report = summarise("open", 10, observation)
    assert report.errors == {"503 overloaded": 2, "503 spool_full": 1, "502": 1, "no reply unanswered": 1}
    assert report.latency_ms["max"] == pytest.approx(100, rel=2e-3)


def test_stages_and_batch_sizes_come_from_the_servers_headers() -> None:
    observation = [ok(0.0, 0.1, infer_ms=float(ms), batch="1" if ms < 26 else "8") for ms in range(1, 101)]
    observation.append(Observation(0, 0, 0.1, ServerReply(200, server_timing="", batch_size="")))
    report = summarise("closed", 4, observation)
    assert report.stages["decode"] == StageTimes(pytest.approx(1.0), pytest.approx(1.0, rel=2e-3))
    assert report.stages["infer"] == StageTimes(pytest.approx(50.5), pytest.approx(99, rel=2e-3))
    assert report.batch_sizes == {1: 25, 8: 75}


def test_the_drivers_own_lateness_is_reported() -> None:
    observation = [ok(0.0, 0.5, lag_s=0.2 if number == 99 else 0.0) for number in range(100)]
    assert summarise("open", 1, [*observation, *observation[-1:] * 2]).send_lag_p99_ms == pytest.approx(200, rel=2e-3)


@pytest.mark.parametrize("observation", [[], [failed(0.0, 503, "overloaded")]])
def test_a_run_without_success_is_reported_as_such(observation: list[Observation]) -> None:
    report = summarise("open", 10, observation)
    assert (report.ok, report.ok_per_s, report.latency_ms) == (0, 0.0, {})
    assert report.stages == {}
    assert report.batch_sizes == {}


def test_values_beyond_the_histogram_are_kept_at_its_ends() -> None:
    latency_ms = summarise("open", 1, [ok(0.0, 10_000.0), ok(0.0, 0.0)]).latency_ms
    assert latency_ms["max"] == pytest.approx(3_600_000, rel=2e-3)


def test_a_report_is_json() -> None:
    report = summarise("open", 10, [ok(0.0, 0.1)])
    document = json.loads(json.dumps(report.as_json()))
    assert document["latency_ms"]["p50"] == pytest.approx(100, rel=2e-3)
    assert document["stages"]["infer"]["mean_ms"] == pytest.approx(8.0)
    assert document["batch_sizes"] == {"4": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("decode;dur=1.2, infer;dur=8", {"decode": 1.2, "infer": 8.0}),
        ('cache;desc="hit";dur=0.5', {"cache": 0.5}),
        ("miss", {}),
        ("", {}),
        ("infer;dur=soon, encode;dur=2", {"encode": 2.0}),
    ],
)
def test_server_timing_is_read_as_the_standard_has_it(value: str, expected: dict[str, float]) -> None:
    assert parse_server_timing(value) == expected


def test_limits_name_the_run_that_broke_them() -> None:
    fast, slow = summarise("open", 5, [ok(0.0, 0.01)]), summarise("closed", 16, [ok(0.0, 0.4), failed(0, 503, "x")])
    none = summarise("open", 50, [failed(0.0, 503, "overloaded")])
    assert broken_limits([fast, slow], None, on_errors=False) == []
    assert broken_limits([fast, slow], 100, on_errors=False) == ["closed loop at 16: p99 400.1 ms is over 100 ms"]
    assert broken_limits([fast, slow], 1000, on_errors=True) == ["closed loop at 16: 1 of 2 requests failed"]
    assert broken_limits([none], 1000, on_errors=False) == ["open loop at 50: no request succeeded"]
