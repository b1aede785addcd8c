"""CORS: which requests pages of other origins may send, and which headers of a reply they may read."""

from __future__ import annotations

from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from service.core.lists_and_folders import listed

_OPENAI_PACKAGE = (
    *("X-Stainless-Arch", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version"),
    *("X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Retry-Count", "X-Stainless-Timeout"),
    *("X-Stainless-Helper-Method", "OpenAI-Organization", "OpenAI-Project", "User-Agent"),
)
"""Request headers of OpenAI's packages (npm's openai 7.57.0), ignored here; a browser sends only allowed ones."""
_CORS: dict[str, Any] = {
    "allow_methods": ["GET", "HEAD", "POST", "DELETE"],
    "allow_headers": [
        *("Authorization", "X-API-Key", "X-Request-ID", "X-Request-Timeout-Ms", "X-Priority", "Prefer"),
        *("Idempotency-Key", "If-None-Match", "If-Range", "Range", "Inference-Header-Content-Length", "traceparent"),
        *_OPENAI_PACKAGE,
    ],
    "expose_headers": [
        *("X-Request-ID", "X-Model", "X-Engine", "X-Batch-Size", "X-Mask-Coverage", "X-Seed", "X-Texture"),
        *("Server-Timing", "Location", "Retry-After", "ETag", "Accept-Ranges", "Content-Range", "Idempotency-Replayed"),
        *("Cache-Status", "traceparent", "X-Ignored-Fields", "Inference-Header-Content-Length"),
    ],
    "max_age": 600,
}
"""CORS options, without credentials: keys are sent in a header, and cookies are not used."""


def allow_origins(app: ASGIApp, origins: str) -> CORSMiddleware:
    """Return the application wrapped so that pages of these origins (comma-separated) may use it."""
    return CORSMiddleware(app, allow_origins=listed(origins), **_CORS)
