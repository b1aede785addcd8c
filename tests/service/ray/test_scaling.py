"""The number of replicas computed from the queues."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("ray")  # an optional dependency
from service.ray.replica import QUEUE_SHARE
from service.ray.scaling import by_queue_depth


@pytest.mark.parametrize(
    ("replicas", "shares", "wanted"),
    [
        pytest.param(2, [1.0, 1.0], 2, id="as deep as they should be"),
        pytest.param(2, [2.5, 2.4], 5, id="deeper: as many as share what waits"),
        pytest.param(1, [1.1], 2, id="a little deeper"),
        pytest.param(4, [0.0, 0.0, 0.0, 0.0], 3, id="empty: one fewer at a time"),
        pytest.param(1, [0.0], 1, id="never none"),
        pytest.param(2, [], 2, id="nothing is known yet: none fewer"),
        pytest.param(4, [0.0, 0.0, 0.0], 4, id="one is unknown: none fewer"),
        pytest.param(3, [2.0, 2.5], 5, id="one is unknown, the others are deep: more"),
        pytest.param(0, [], 1, id="nobody there yet"),
    ],
)
def test_replicas_follow_the_depth_of_all_queues(replicas: int, shares: list[float], wanted: int) -> None:
    metrics = {QUEUE_SHARE: dict(enumerate(shares))} if shares else {}
    context = SimpleNamespace(aggregated_metrics=metrics, current_num_replicas=replicas)
    assert by_queue_depth(cast("Any", context)) == (wanted, {})
