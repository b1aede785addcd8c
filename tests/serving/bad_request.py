"""One bad HTTP request, and builders of the parts of its multipart body."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.serving import image_files as files

BOUNDARY = "boundary-of-the-test"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"
SIDE = 64


@dataclass(frozen=True)
class BadRequest:
    """One request and its required answer.

    code: `code` in the problem+json body; None where the HTTP parser answers in plain text.
    """

    name: str
    status: int
    code: str | None
    path: str = "/v1/inpaint"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bytes | None = None
    """The exact bytes to send, in place of a request made from the fields above."""

    def raw(self) -> bytes:
        """Return the bytes of the request; Content-Length is added unless a header replaces it."""
        if self.whole is not None:
            return self.whole
        headers = {"Host": "localhost", "Connection": "close", **self.headers}
        if not {"Content-Length", "Transfer-Encoding"} & set(headers):
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    """Return a part of a multipart body; a file if it has a file name."""
    file = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + data + b"\r\n"


def body_of(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


PIXELS = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
PHOTO = files.saved(PIXELS, "PNG")
JPEG = files.saved(PIXELS, "JPEG")
PROGRESSIVE = files.saved(PIXELS, "JPEG", progressive=True)
WEBP = files.saved(PIXELS, "WEBP")
HOLE = np.zeros((SIDE, SIDE, 1), np.uint8)
HOLE[24:40, 24:40] = 255
MASK = files.png(HOLE)
IMAGE_PART = part("image", PHOTO, "photo.png")
MASK_PART = part("mask", MASK, "mask.png")


def grey(value: int, height: int = SIDE, width: int = SIDE) -> bytes:
    return files.png(np.full((height, width, 1), value, np.uint8))


def with_image(name: str, status: int, code: str, image: bytes, mask: bytes = MASK) -> BadRequest:
    body = body_of(part("image", image, "a.png"), part("mask", mask, "b.png"))
    return BadRequest(f"image: {name}", status, code, headers={"Content-Type": MULTIPART}, body=body)


def with_mask(name: str, status: int, code: str, mask: bytes, **fields: str) -> BadRequest:
    texts = [part(key, value.encode()) for key, value in fields.items()]
    body = body_of(IMAGE_PART, part("mask", mask, "b.png"), *texts)
    return BadRequest(f"mask: {name}", status, code, headers={"Content-Type": MULTIPART}, body=body)


def with_parts(name: str, status: int, code: str | None, *parts: bytes, path: str = "/v1/inpaint") -> BadRequest:
    return BadRequest(name, status, code, path, headers={"Content-Type": MULTIPART}, body=body_of(*parts))


def with_field(field_name: str, value: str, status: int = 422, code: str = "invalid_option") -> BadRequest:
    name = f"field: {field_name}={value[:24]}"
    return with_parts(name, status, code, IMAGE_PART, MASK_PART, part(field_name, value.encode()))


def with_headers(name: str, status: int, code: str | None, **headers: str) -> BadRequest:
    """Return a request with a valid body and bad headers; `_` in a name stands for `-`."""
    renamed = {key.replace("_", "-"): value for key, value in headers.items()}
    all_headers = {"Content-Type": MULTIPART, **renamed}
    body = body_of(IMAGE_PART, MASK_PART, part("quality", b"90"))
    return BadRequest(f"header: {name}", status, code, headers=all_headers, body=body)
