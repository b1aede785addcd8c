"""The report of a comparison has the medians and each round's figures."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.report import medians, table


def a_round(p50_ms: float, computed: int | None) -> dict[str, dict[str, Any]]:
    return {"at_100": {"p50_ms": p50_ms, "p99_ms": 30.0}, "abandoned": {"sent": 384, "computed": computed}}


def test_medians_are_taken_over_the_rounds_that_have_the_part() -> None:
    burst = {"burst": {"ok": 2000, "works_after": True}}
    merged = medians([a_round(14.0, 10), a_round(13.0, 30), {**a_round(18.0, 20), **burst}])
    assert merged["at_100"]["p50_ms"] == 14.0
    assert merged["abandoned"] == {"sent": 384, "computed": 20}
    assert merged["burst"] == {"ok": 2000, "works_after": True}


def test_a_count_that_a_server_does_not_report_stays_unknown() -> None:
    assert medians([a_round(14.0, None), a_round(13.0, None)])["abandoned"]["computed"] is None


def test_the_table_names_processor_and_load_and_has_medians_and_rounds_of_the_measured_parts_only() -> None:
    rounds = [a_round(14.0, 10), a_round(13.0, 30)]
    model = {
        "engine_alone_per_s": 1000.0,
        "load": [0.5, 2.0],
        "contenders": {"retouch": {"medians": medians(rounds), "rounds": rounds}},
    }
    machine = {"processor": "Big Iron", "features": ["avx2"], "cores": 2}
    text = table({"machine": machine, "models": {"tiny": model}})
    assert "Big Iron (avx2), 2 cores" in text
    assert "load 0.5 to 2.0" in text
    assert "| retouch | 13.5 / 30 | 20 of 384 |" in text
    assert "- retouch, abandoned, computed: 10 of 384; 30 of 384" in text
    assert "SIGTERM" not in text
