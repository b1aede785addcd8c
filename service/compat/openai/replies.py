"""From replies and errors to the JSON of OpenAI's images API. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from service.core.errors import ServiceError
from service.core.reply import Reply
from service.intake.written_bodies import write_json

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""Values of `type` by status; other statuses below 500 are invalid_request_error."""
_NO_TOKENS = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
_REQUIRED_OF_EVENTS = {"background": "auto", "quality": "auto", "usage": _NO_TOKENS}
"""Fields without a meaning here that OpenAI's schema requires of events, but not of other responses, where the first
two may not even be `auto`."""


def images_json(reply: Reply, created: int, link_to: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Return the body of a response, for `json_body`.

    Args:
        reply: the pictures.
        created: seconds since the epoch.
        link_to: makes a link to a stored result; by default the pictures are in the body.
    """
    data = [
        {"url": link_to(picture.result_id)} if link_to and picture.result_id else {"b64_json": picture.body}
        for picture in reply.pictures
    ]
    return {"created": created, "data": data, **_described(reply)}


def images_events(reply: Reply, created: int, event: str) -> bytes:
    """Return a stream that is complete at once: one `event` for each picture, in the order of their index."""
    stream = BytesIO()
    for picture in reply.pictures:
        data = {
            "type": event,
            "b64_json": picture.body,
            "created_at": created,
            **_described(reply),
            **_REQUIRED_OF_EVENTS,
        }
        stream.write(f"event: {event}\ndata: ".encode("ascii"))
        write_json(stream, data)
        stream.write(b"\n\n")
    stream.write(b"data: [DONE]\n\n")
    return stream.getvalue()


def error_body(error: ServiceError) -> dict[str, Mapping[str, Any]]:
    """Return the body of an error."""
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": str(error), "type": kind, "param": error.field or None, "code": error.code}}


def _described(reply: Reply) -> dict[str, str]:
    return {
        "size": f"{reply.size.width}x{reply.size.height}",
        "output_format": reply.media_type.removeprefix("image/"),
    }
