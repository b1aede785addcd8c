"""One valid request for pictures to each foreign API, and the place of the message in the API's errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.service.compat.open_inference.infer_requests import as_json
from tests.serving.bad_request import MASK, MULTIPART, PHOTO, body_of, part


@dataclass(frozen=True)
class ForeignRequest:
    """A request that is answered with a picture.

    message: returns the message in the decoded body of an error.
    """

    api: str
    path: str
    content_type: str
    body: bytes
    message: Callable[[Any], str]

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.content_type}


def as_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


EDIT = ForeignRequest(
    "openai",
    "/v1/images/edits",
    MULTIPART,
    body_of(part("image", PHOTO, "a.png"), part("mask", MASK, "b.png"), part("mask_mode", b"white")),
    lambda body: body["error"]["message"],
)
JSON_EDIT = ForeignRequest(
    "openai",
    EDIT.path,
    "application/json",
    json.dumps(
        {"images": [{"image_url": as_text(PHOTO)}], "mask": {"image_url": as_text(MASK)}, "mask_mode": "white"}
    ).encode(),
    EDIT.message,
)
IOPAINT = ForeignRequest(
    "iopaint",
    "/api/v1/inpaint",
    "application/json",
    json.dumps({"image": as_text(PHOTO), "mask": as_text(MASK)}).encode(),
    lambda body: body["errors"],
)
INFER = ForeignRequest(
    "open-inference",
    "/v2/models/photos/infer",
    "application/json",
    json.dumps(as_json(PHOTO, MASK)).encode(),
    lambda body: body["error"],
)
IMG2IMG = ForeignRequest(
    "automatic1111",
    "/sdapi/v1/img2img",
    "application/json",
    json.dumps({"init_images": [as_text(PHOTO)], "mask": as_text(MASK)}).encode(),
    lambda body: body["detail"],
)
GOOD = (EDIT, IOPAINT, INFER, IMG2IMG)
OF_JSON = (JSON_EDIT, IOPAINT, INFER, IMG2IMG)
