"""The number of replicas that Ray should keep, by the depth of their queues."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from service.ray.replica import QUEUE_SHARE

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext


def by_queue_depth(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Return the wanted number of replicas; Ray applies its bounds and delays.

    As many as bring the queues of all together to the depth that is wanted of each; one fewer at a time, because an
    empty queue does not say how many replicas keep it empty.
    """
    shares = (context.aggregated_metrics or {}).get(QUEUE_SHARE, {})
    return max(1, math.ceil(sum(shares.values())), context.current_num_replicas - 1), {}
