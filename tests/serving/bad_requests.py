"""Bad HTTP requests to /v1/inpaint, /v1/translate and related paths, each with its documented answer.

Pure data: `cases()` builds them, `BadRequest.raw()` is what goes over the socket. They are written for a server with an
inpainting model `photos`, a translating model `facades`, and the default limits.
"""

from __future__ import annotations

from tests.serving.bad_fields import body_cases, field_cases, header_cases, part_cases, path_cases
from tests.serving.bad_images import image_cases, mask_cases
from tests.serving.bad_request import BadRequest


def cases() -> list[BadRequest]:
    """Return all bad requests; their names are unique."""
    found = [
        *image_cases(),
        *mask_cases(),
        *part_cases(),
        *field_cases(),
        *header_cases(),
        *body_cases(),
        *path_cases(),
    ]
    assert len({case.name for case in found}) == len(found)
    return found
