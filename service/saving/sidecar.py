"""Content of the sidecar of a stored result, from the reply and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.core.call import Call, Timings
from service.core.order import Order
from service.core.pictures import Size
from service.core.reply import Encoded, Reply


def sidecar_of(reply: Reply, index: int, order: Order, call: Call) -> dict[str, Any]:
    """Return the sidecar of one picture of a reply, as JSON values, to which the store adds more (`StoredResult`)."""
    drawn: dict[str, int] = {}
    if (seed := reply.seed) is not None:
        drawn = dict(zip(("seed", "sample"), order.seed_and_sample(seed, index), strict=True))
    elif len(reply.pictures) > 1:
        drawn = {"sample": index}
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


def reply_of(stored: Sequence[tuple[Encoded, dict[str, Any]]]) -> Reply | None:
    """Return the reply that stored these pictures, given in any order with their sidecars; None if damaged or none."""
    try:
        ordered = sorted(stored, key=lambda one: (one[1].get("seed", 0), one[1].get("sample", 0)))
        first = ordered[0][1]
        return Reply(
            pictures=tuple(picture for picture, _ in ordered),
            media_type=first["media_type"],
            size=Size(first["height"], first["width"]),
            model=first["model"],
            engine=first["engine"],
            batch_size=first["batch_size"],
            coverage=first["mask_coverage"],
            seed=first.get("seed"),
            timings=Timings({stage: spent_ms / 1e3 for stage, spent_ms in first["timings_ms"].items()}),
            texture=first.get("texture"),
        )
    except (IndexError, KeyError, TypeError, AttributeError):
        return None
