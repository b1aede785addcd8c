"""The real service in subprocesses, clients, and a few faults: no client loses a picture.

`make chaos` is the long version, with every fault many times.
"""

from __future__ import annotations

import pytest

from benchmarks.faults.chaos import Plan, run_chaos

pytestmark = pytest.mark.slow

FAULTS = frozenset({"the engine raises", "the engine dies", "connections are torn", "60 clients hang up", "S3 fails"})


@pytest.mark.parametrize(
    ("workers", "kinds"),
    [pytest.param(0, FAULTS, id="one process"), pytest.param(2, {"a front end is killed"}, id="front ends")],
)
async def test_every_client_gets_its_picture_whatever_goes_wrong(workers: int, kinds: frozenset[str]) -> None:
    seconds = 6.0 if workers == 0 else 3.0
    plan = Plan(seconds, 20.0, workers, pause_s=0.1, only=frozenset(kinds), warm_up_s=1.5)
    verdict = await run_chaos(plan)
    assert verdict["faults"] >= 1
    assert set(verdict["kinds"]) == set(kinds)
    bad = ("lost", "answered_twice", "hung", "odd", "promised_results_missing", "never_recovered")
    assert {name: verdict[name] for name in bad} == dict.fromkeys(bad, 0), verdict["details"]
    assert verdict["requests"] > 30
