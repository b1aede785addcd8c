"""The verdict on killed replicas: every reply and job is in exactly one count."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.faults.replica_verdict import Round, outcome, verdict
from benchmarks.harness.raw_http import Reply

PROBLEM = b'{"code":"not_ready"}'


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        (Reply(200, {}, b"picture"), "200"),
        (Reply(503, {"retry-after": "5"}, PROBLEM), "refused not_ready"),
        (Reply(503, {}, PROBLEM), "503 not_ready"),
        (Reply(502, {"retry-after": "5"}, PROBLEM), "502 not_ready"),  # the request may have been computed
        (Reply(0, {}, b"", "cut off"), "cut off"),
    ],
)
def test_only_a_429_or_503_that_says_when_to_come_again_is_a_refusal(reply: Reply, name: str) -> None:
    assert outcome(reply) == name


def test_what_a_kill_cost_is_summed_over_the_rounds() -> None:
    replies = Counter({"200": 5, "202": 2, "refused not_ready": 3, "cut off": 1, "502 worker_lost": 4, "hung": 1})
    bad = Round("server", 4, 0, replies, ["odd"], Counter(succeeded=1, failed=1), 1, 2, 1, 8.0)
    good = Round("replica", 4, 2, Counter({"202": 1}), [], Counter(succeeded=1), 0, 0, 0, 6.0)
    found = verdict([bad, good], surplus=7)
    assert found.pop("replies").pop("200") == 5
    assert found == {
        "kills": {"server": 1, "replica": 1},
        "requests": 17,
        "answered": 8,
        "refused": 3,
        "cut_off": 1,
        "no_or_other_reply": 5,
        "odd_replies": 1,
        "answered_twice": 7,
        "replayed_differently": 1,
        "jobs": 3,
        "jobs_not_succeeded": 1,
        "jobs_lost": 1,
        "jobs_recorded_twice": 2,
        "inside_at_the_kills": 8,
        "retries": 2,
        "kills_that_met_no_request": 1,
        "slowest_new_replica_s": 8.0,
    }


def test_a_lost_job_and_a_doubled_one_do_not_cancel_each_other() -> None:
    one = Round("server")
    one.compare_jobs(["/v1/jobs/lost", "/v1/jobs/kept"], {"kept", "doubled"})
    found = verdict([one], surplus=0)
    assert (found["jobs_lost"], found["jobs_recorded_twice"]) == (1, 1)
