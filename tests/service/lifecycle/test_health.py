"""Readiness follows from the state of the server's parts."""

from __future__ import annotations

from dataclasses import replace

from engines.repository.versions import ModelStatus
from service.lifecycle.health import Outage, ReadinessState, storage_reasons, unready_reasons

WELL = ReadinessState(draining=False, scanned=True, worker_ready=True, models=[ModelStatus("photos", 1, "ready")])


def test_a_server_with_healthy_parts_is_ready() -> None:
    assert unready_reasons(WELL) == []


def test_each_unhealthy_part_is_named() -> None:
    assert unready_reasons(replace(WELL, draining=True)) == ["draining: the server is shutting down"]
    assert unready_reasons(replace(WELL, scanned=False, models=[])) == ["models are loading"]
    loading = replace(WELL, scanned=False, models=[], loading="photos/5 (2 of 4), for 3 s")
    assert unready_reasons(loading) == ["models are loading: photos/5 (2 of 4), for 3 s"]
    for start in (loading, replace(loading, loading="")):
        assert unready_reasons(replace(start, worker_ready=False)) == unready_reasons(start), "not yet connected"
    assert unready_reasons(replace(WELL, loading="photos/6, for 3 s")) == []
    assert len(unready_reasons(replace(WELL, loading="photos/6, for 3 s", worker_ready=False))) == 1
    assert "worker" in unready_reasons(replace(WELL, worker_ready=False))[0]
    assert "empty" in unready_reasons(replace(WELL, models=[]))[0]


def test_a_refused_model_is_named_with_its_reason_when_nothing_else_serves() -> None:
    refused = ModelStatus("photos", 2, "refused", reason="sha256 differs")
    assert unready_reasons(replace(WELL, models=[refused])) == [
        "no model can be served (photos/2: sha256 differs)",
    ]
    assert unready_reasons(replace(WELL, models=[refused, *WELL.models])) == []


def test_a_failing_disk_is_named_if_results_are_saved() -> None:
    assert storage_reasons("", "", saves=True) == []
    assert storage_reasons("No space left on device", "", saves=True) == [
        "results cannot be saved (No space left on device)"
    ]
    assert storage_reasons("No space left on device", "", saves=False) == [], "requests that save nothing are served"
    for disk, saves in (("", True), ("No space left on device", False)):
        assert storage_reasons(disk, "it was moved without its log", saves=saves) == [
            "the ledger is not used: it was moved without its log"
        ]


def test_a_starting_server_predicts_the_time_it_has_taken_so_far() -> None:
    outage = Outage(since=100.0)
    outage.observe(False, 103.0)
    assert outage.remaining_s(104.0) == 4.0


def test_a_later_outage_is_predicted_to_last_as_long_as_the_last() -> None:
    outage = Outage(since=100.0)
    outage.observe(True, 108.0)
    outage.observe(False, 200.0)
    assert outage.remaining_s(203.0) == 5.0
    assert outage.remaining_s(230.0) == 30.0
    outage.observe(True, 202.0)
    assert (outage.startup_s, outage.usual_s) == (8.0, 2.0)
