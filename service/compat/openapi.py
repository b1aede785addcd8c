"""Descriptions of foreign APIs' routes for the OpenAPI document."""

from __future__ import annotations

from typing import Any


def request_body(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """Return the `openapi_extra` of a route that needs a body of this type."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}
