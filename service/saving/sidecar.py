"""Content of the sidecar of a stored result."""

from __future__ import annotations

from typing import Any

from service.core.call import Call
from service.core.order import Order
from service.core.reply import Reply


def sidecar_of(reply: Reply, index: int, order: Order, call: Call) -> dict[str, Any]:
    """Return the sidecar of one picture of a reply, as JSON values, to which the store adds more (`StoredResult`)."""
    seed = reply.seed
    drawn = {} if seed is None else dict(zip(("seed", "sample"), order.seed_and_sample(seed, index), strict=True))
    owned = {"owner": owner} if (owner := call.flow.owner) else {}
    return {
        **owned,
        "request_id": call.request_id,
        "model": reply.model,
        "engine": reply.engine,
        "options": order.options.model_dump(exclude_none=True),
        **drawn,
        **({"texture": reply.texture} if reply.texture else {}),
        "width": reply.size.width,
        "height": reply.size.height,
        "mask_coverage": reply.coverage,
        "batch_size": reply.batch_size,
        "timings_ms": {stage: round(seconds * 1e3, 3) for stage, seconds in reply.timings.stages.items()},
    }
