"""The error body that the APIs of AUTOMATIC1111 and IOPaint have in common."""

from __future__ import annotations

from typing import Any

from service.core.errors import ServiceError


def error_body(error: ServiceError) -> dict[str, Any]:
    """Return the body of an error; the page of IOPaint shows `errors`."""
    return {"error": error.title, "detail": str(error), "body": "", "errors": str(error), "code": error.code}
