"""Facts that a reply states about its pictures: response headers in HTTP, trailing metadata in gRPC. Pure."""

from __future__ import annotations

import math

from service.core.errors import ServiceError
from service.core.reply import CacheOutcome, Reply

_CACHE_STATUS = {
    "hit": "retouch; hit",
    "miss": "retouch; fwd=uri-miss",
    "coalesced": "retouch; fwd=uri-miss; collapsed",
    "bypass": "retouch; fwd=bypass",
}
"""Values of the Cache-Status header (RFC 9211)."""


def reply_facts(reply: Reply) -> dict[str, str]:
    """Return what made the pictures, and where they are stored, by the names of headers."""
    url = reply.pictures[0].url if len(reply.pictures) == 1 else None
    return {
        "X-Model": reply.model,
        "X-Engine": reply.engine,
        "X-Batch-Size": str(reply.batch_size),
        "Server-Timing": reply.timings.header(),
        **({"X-Mask-Coverage": f"{reply.coverage:.6f}"} if reply.coverage is not None else {}),
        **({"X-Seed": str(reply.seed)} if reply.seed is not None else {}),
        **({"X-Texture": reply.texture} if reply.texture is not None else {}),
        **({"Location": url} if url else {}),
        **({"Cache-Status": _cache_status(reply.cache, reply)} if reply.cache else {}),
    }


def whole_seconds_to_return(error: ServiceError) -> int | None:
    """Return the whole seconds, at least 1, after which to try again; None if that is not known."""
    return None if error.retry_after_s is None else max(1, math.ceil(error.retry_after_s))


def _cache_status(outcome: CacheOutcome, reply: Reply) -> str:
    """Return the Cache-Status header; a computed result is cached for later requests only if it is saved."""
    kept = outcome == "miss" and all(picture.result_id for picture in reply.pictures)
    return f"{_CACHE_STATUS[outcome]}; stored" if kept else _CACHE_STATUS[outcome]
