from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.scale import plan
from benchmarks.scale.options import fleet_of, run_once


def _options(**more: object) -> argparse.Namespace:
    chosen = {"kind": "photos-cpu", "balancing": "least requests", "proxies": 1, "uneven": 0.0, "price": 2.0, "seed": 1}
    return argparse.Namespace(**{**chosen, "requests": 3000, **more})


def test_the_plan_is_the_smallest_number_of_nodes_that_keeps_the_bound() -> None:
    options = _options()
    found = plan.nodes_for(options, 400.0, 200.0)
    assert found["p99_ms"] <= 200.0
    one_less = run_once(fleet_of(options, found["nodes"] - 1), plan.traffic_of(400.0, options), options.seed)
    assert one_less.latency_s(0.99) > 0.2
    assert found["million_costs"] == pytest.approx(found["nodes"] / 400.0 / 3600 * 2.0 * 1e6, rel=0.05)


def test_a_bound_below_the_time_of_a_batch_is_kept_by_no_number_of_nodes() -> None:
    assert plan.nodes_for(_options(requests=500), 50.0, 20.0, max_nodes=16)["nodes"] is None


def test_the_picture_has_the_curves(tmp_path: Path) -> None:
    options = _options(requests=500)
    rows = [plan.curve(options, nodes, load) for nodes in (1, 2) for load in (0.3, 0.6)]
    plan.draw({"kind": options.kind, "curves": rows}, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
