"""The number of replicas that Ray should keep, from the depth of their queues."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from service.ray.replica import QUEUE_SHARE

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext


def by_queue_depth(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Return the wanted number of replicas, to which Ray applies its bounds and delays.

    The number brings the average queue to the wanted depth. It falls by at most one at a time, because an empty queue
    does not show how many replicas are needed to keep it empty, and not at all while the depth of a queue is unknown,
    for example because a server is too busy to answer.
    """
    shares = (context.aggregated_metrics or {}).get(QUEUE_SHARE, {})
    current = context.current_num_replicas
    fewest = current - 1 if len(shares) >= current else current
    return max(1, math.ceil(sum(shares.values())), fewest), {}
