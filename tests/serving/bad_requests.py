"""Bad HTTP requests to /v1/inpaint, /v1/translate and the paths round them, each with its documented answer.

Pure data: `cases()` builds them, `BadRequest.raw()` is what goes over the socket. They are written for a server with an
inpainting model `photos`, a translating model `facades`, and the default limits.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import numpy as np

from tests.serving import image_files as files

BOUNDARY = "boundary-of-the-test"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"
SIDE = 64


@dataclass(frozen=True)
class BadRequest:
    """One request and the answer that it must get.

    code: of the problem+json body; None where the HTTP parser answers, in plain text.
    """

    name: str
    status: int
    code: str | None
    path: str = "/v1/inpaint"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bytes | None = None
    """Instead of all of the above: exactly these bytes."""

    def raw(self) -> bytes:
        """The request as it goes over the socket; its length is announced unless a header says otherwise."""
        if self.whole is not None:
            return self.whole
        headers = {"Host": "test", "Connection": "close", **self.headers}
        if not {"Content-Length", "Transfer-Encoding"} & set(headers):
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    """A part of a multipart body; a file where it has a file name."""
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
    """A good body under bad headers; `_` in a name stands for `-`."""
    renamed = {key.replace("_", "-"): value for key, value in headers.items()}
    all_headers = {"Content-Type": MULTIPART, **renamed}
    body = body_of(IMAGE_PART, MASK_PART, part("quality", b"90"))
    return BadRequest(f"header: {name}", status, code, headers=all_headers, body=body)


def image_cases() -> list[BadRequest]:
    unsupported = {
        "text": b"hello, I am a picture",
        "html": b"<!DOCTYPE html><html></html>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "gif": files.saved(PIXELS, "GIF"),
        "bmp": files.saved(PIXELS, "BMP"),
        "tiff": files.saved(PIXELS, "TIFF"),
        "heic": b"\0\0\0\x1cftypheic" + bytes(64),
        "avif": b"\0\0\0\x1cftypavif" + bytes(64),
        "pdf": b"%PDF-1.7\n",
        "zip": b"PK\x03\x04" + bytes(30),
        "zeros": bytes(1000),
        "12-bit jpeg": JPEG.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c"),
        "lossless jpeg": JPEG.replace(b"\xff\xc0\x00\x11", b"\xff\xc3\x00\x11"),
    }
    animated = {
        "animated webp": files.riff(files.vp8x(9, 9, flags=2)),
        "animated png": files.png(PIXELS, files.chunk(b"acTL", struct.pack(">II", 3, 0))),
    }
    too_many = {
        "bomb of 169 megapixels": files.png_bomb(),
        "png of 2^31 - 1 squared": files.PNG_SIGNATURE + files.ihdr(2**31 - 1, 2**31 - 1),
        "png of one long row": files.PNG_SIGNATURE + files.ihdr(70_000, 1),
        "jpeg of 65535 squared": files.jpeg_with_size(JPEG, 65_535, 65_535),
        "webp of 16384 squared": files.riff(files.vp8l_header(16_384, 16_384)),
        "webp canvas of 16384 squared": files.riff(files.vp8x(16_384, 16_384), files.vp8l_header(1, 1)),
    }
    return [
        *(with_image(name, 415, "unsupported_type", data) for name, data in unsupported.items()),
        *(with_image(name, 415, "animated_image", data) for name, data in animated.items()),
        *(with_image(name, 413, "too_many_pixels", data) for name, data in too_many.items()),
        *(with_image(name, 400, "invalid_image", data) for name, data in broken_images().items()),
        with_image("empty", 400, "empty_part", b""),
        with_image("1×1 with a mask of 64×64", 400, "sizes_differ", grey(9, 1, 1)),
        with_image("1×1 with a white mask", 422, "mask_full", grey(9, 1, 1), grey(255, 1, 1)),
        with_image("1×1 with a black mask", 422, "mask_empty", grey(9, 1, 1), grey(0, 1, 1)),
    ]


def broken_images() -> dict[str, bytes]:
    rows = files.png_rows(np.zeros((SIDE, 3 * SIDE), np.uint8))
    last_scan = PROGRESSIVE.rindex(b"\xff\xda")
    return {
        "jpeg cut in half": JPEG[: len(JPEG) // 2],
        "jpeg cut in its header": JPEG[:100],
        "jpeg without its last byte": JPEG[:-1],
        "jpeg cut and ended": JPEG[: len(JPEG) // 2] + b"\xff\xd9",
        "jpeg of two markers": b"\xff\xd8\xff\xd9",
        "jpeg of 70,000 segments": b"\xff\xd8" + files.jpeg_segment(0xFE, b"") * 70_000,
        "jpeg of 300 scans": PROGRESSIVE[:-2] + PROGRESSIVE[last_scan:-2] * 300 + b"\xff\xd9",
        "jpeg of height 0": files.jpeg_with_size(JPEG, SIDE, 0),
        "jpeg with random scan data": JPEG[:640] + np.random.default_rng(1).bytes(len(JPEG) - 642) + b"\xff\xd9",
        "png cut in half": PHOTO[: len(PHOTO) // 2],
        "png without its last byte": PHOTO[:-1],
        "png signature only": files.PNG_SIGNATURE,
        "png with a wrong checksum": PHOTO[:60] + bytes((PHOTO[60] ^ 1,)) + PHOTO[61:],
        "png of width 0": files.png_of_chunks(files.ihdr(0, SIDE), files.chunk(b"IDAT", rows)),
        "png of 0×0": files.png_of_chunks(files.ihdr(0, 0), files.chunk(b"IDAT", rows)),
        "png without data": files.png_of_chunks(files.ihdr(SIDE, SIDE)),
        "png with half of its rows": files.png_of_chunks(files.ihdr(SIDE, 2 * SIDE), files.chunk(b"IDAT", rows)),
        "png with garbage for data": files.png_of_chunks(files.ihdr(SIDE, SIDE), files.chunk(b"IDAT", bytes(99))),
        "png of 16 bits with 8-bit data": files.png_of_chunks(files.ihdr(SIDE, SIDE, 16), files.chunk(b"IDAT", rows)),
        "png of an impossible depth": files.png_of_chunks(files.ihdr(SIDE, SIDE, 7), files.chunk(b"IDAT", rows)),
        "palette png without a palette": files.png_of_chunks(files.ihdr(9, 9, 8, 3), files.chunk(b"IDAT", rows)),
        "png of 70,000 chunks": files.PNG_SIGNATURE + files.ihdr(9, 9) + files.chunk(b"tEXt", b"") * 70_000,
        "png with a chunk of 4 GB": files.PNG_SIGNATURE + files.ihdr(9, 9) + b"\xff\xff\xff\xffIDAT",
        "png with a profile of 100 MB": files.png(PIXELS, files.inflating_chunk(b"iCCP", b"bomb\0\0")),
        "webp cut in half": WEBP[: len(WEBP) // 2],
        "webp header only": b"RIFF\x04\0\0\0WEBP",
        "webp without pixels": files.riff(files.vp8l_header(SIDE, SIDE)),
    }


def mask_cases() -> list[BadRequest]:
    turned = files.png(np.full((SIDE, SIDE // 2, 1), 255, np.uint8), files.chunk(b"eXIf", files.exif(6)))
    return [
        with_mask("empty", 400, "empty_part", b""),
        with_mask("text", 415, "unsupported_type", b"mask"),
        with_mask("cut in half", 400, "invalid_image", MASK[: len(MASK) // 2]),
        with_mask("bomb of 169 megapixels", 413, "too_many_pixels", files.png_bomb()),
        with_mask("of another size", 400, "sizes_differ", grey(255, SIDE, SIDE + 1)),
        with_mask("turned to another size", 400, "sizes_differ", turned),
        with_mask("black", 422, "mask_empty", grey(0)),
        with_mask("white", 422, "mask_full", grey(255)),
        with_mask("white in mode black", 422, "mask_empty", grey(255), mask_mode="black"),
        with_mask("without alpha in mode alpha", 422, "no_alpha", MASK, mask_mode="alpha"),
    ]


def part_cases() -> list[BadRequest]:
    return [
        with_parts("no parts", 400, "missing_part"),
        with_parts("no image", 400, "missing_part", MASK_PART),
        with_parts("no mask", 400, "missing_part", IMAGE_PART),
        with_parts("image as text", 400, "missing_part", part("image", b"photo.png"), MASK_PART),
        with_parts("image twice", 400, "repeated_part", IMAGE_PART, IMAGE_PART, MASK_PART),
        with_parts("field twice", 400, "repeated_part", IMAGE_PART, MASK_PART, *[part("quality", b"9")] * 2),
        with_parts("a file too many", 400, "invalid_request", IMAGE_PART, MASK_PART, part("depth", PHOTO, "d.png")),
        with_parts("a file named ../", 400, "invalid_request", part("../../image", PHOTO, "../../etc/passwd")),
        with_parts("100 parts", 400, "invalid_request", *[part(f"field{n}", b"x") for n in range(100)]),
        with_parts("broken file in ../", 415, "unsupported_type", part("image", b"x", "../../a"), MASK_PART),
        with_parts("translate: no image", 400, "missing_part", path="/v1/translate"),
        with_parts("translate: a mask", 400, "invalid_request", IMAGE_PART, MASK_PART, path="/v1/translate"),
        with_parts("translate: text", 415, "unsupported_type", part("image", b"x", "a"), path="/v1/translate"),
        with_parts(
            "translate: bomb", 413, "too_many_pixels", part("image", files.png_bomb(), "a"), path="/v1/translate"
        ),
        with_parts(
            "translate: cut", 400, "invalid_image", part("image", PHOTO[:500], "a"), path="/v1/translate"
        ),
        with_parts(
            "translate: mask_mode", 422, "invalid_option", IMAGE_PART, part("mask_mode", b"white"), path="/v1/translate"
        ),
        with_parts(
            "translate: model photos", 422, "wrong_task", IMAGE_PART, part("model", b"photos"), path="/v1/translate"
        ),
    ]  # fmt: skip


def field_cases() -> list[BadRequest]:
    absurd = {
        "format": ("gif", "", "PNG "),
        "quality": ("0", "101", "-5", "1e9", "abc", "", "NaN", "9" * 400),
        "seed": ("-1", str(2**63), "1.5", "seed", "inf"),
        "strategy": ("magic", "AUTO"),
        "mask_mode": ("auto", "white\0"),
        "mask_resize": ("bilinear",),
        "save": ("perhaps", "2"),
        "model": (
            "../../etc/passwd",
            "photos/../facades",
            "Photos",
            "photos/0",
            "photos/latest",
            "/",
            "photos/1/1",
            "",
        ),
        "qualty": ("90",),
        "__class__": ("x",),
        "../quality": ("90",),
    }
    wide = part("image", grey(9, 1, 16_400), "a"), part("mask", grey(255, 1, 16_400), "b")
    return [
        *(with_field(name, value) for name, values in absurd.items() for value in values),
        with_field("model", "nobody", 404, "model_not_found"),
        with_field("model", "photos/99", 404, "model_not_found"),
        with_field("model", "facades", 422, "wrong_task"),
        with_field("model", "x" * 10_000, 400, "invalid_request"),
        with_parts("a webp too wide", 422, "format_too_small", *wide, part("format", b"webp")),
        with_parts("bytes that are no text", 422, "invalid_option", IMAGE_PART, MASK_PART, part("model", b"\xff\xfe")),
    ]


def header_cases() -> list[BadRequest]:
    json_body = BadRequest(
        "header: json", 415, "unsupported_type", headers={"Content-Type": "application/json"}, body=b'{"image": ""}'
    )
    return [
        json_body,
        BadRequest("header: no content type", 415, "unsupported_type", body=PHOTO),
        with_headers("urlencoded", 415, "unsupported_type", Content_Type="application/x-www-form-urlencoded"),
        with_headers("an image itself", 415, "unsupported_type", Content_Type="image/png"),
        with_headers("no boundary", 400, "invalid_request", Content_Type="multipart/form-data"),
        with_headers("another boundary", 400, "invalid_request", Content_Type="multipart/form-data; boundary=other"),
        with_headers(
            "a charset for domain names", 400, "invalid_request", Content_Type=MULTIPART + "; charset=punycode"
        ),
        with_headers("gzip", 415, "unsupported_encoding", Content_Encoding="gzip"),
        with_headers("two encodings", 415, "unsupported_encoding", Content_Encoding="identity, br"),
        with_headers("timeout of words", 422, "invalid_option", X_Request_Timeout_Ms="soon"),
        with_headers("timeout of 0", 422, "invalid_option", X_Request_Timeout_Ms="0"),
        with_headers("timeout below 0", 422, "invalid_option", X_Request_Timeout_Ms="-1"),
        with_headers("timeout for ever", 422, "invalid_option", X_Request_Timeout_Ms="1e99"),
        with_headers("timeout nan", 422, "invalid_option", X_Request_Timeout_Ms="nan"),
        with_headers("length of 10 GB", 413, "too_many_bytes", Content_Length=str(10**10)),
        with_headers("length of words", 400, None, Content_Length="many"),
        with_headers("length below 0", 400, None, Content_Length="-5"),
        with_headers("length beyond 64 bits", 400, None, Content_Length="9" * 30),
        with_headers("length and chunks", 400, None, Content_Length="5", Transfer_Encoding="chunked"),
        with_headers("length too short", 400, "invalid_request", Content_Length="200"),
        with_headers("no chunks", 400, None, Transfer_Encoding="chunked"),
        with_headers("a line of 70 kB", 400, None, X_Long="x" * 70_000),
        with_headers("5,000 lines", 400, None, **{f"X_{n}": "some value" for n in range(5_000)}),
    ]


def body_cases() -> list[BadRequest]:
    whole = body_of(IMAGE_PART, MASK_PART)
    bodies = {
        "cut inside a part": whole[: len(whole) // 2],
        "no last boundary": whole[: -len(BOUNDARY) - 6],
        "no boundary at all": PHOTO,
        "nothing": b"",
        "a part without a name": whole.replace(b'name="image"', b'nom="image"', 1),
        "a part without headers": f"--{BOUNDARY}\r\n\r\nx\r\n--{BOUNDARY}--\r\n".encode(),
        "a part with a header of 100 kB": whole.replace(b"; name=", b"; x=" + b"y" * 100_000 + b"; name=", 1),
        "deflated": zlib.compress(whole),
    }
    return [
        BadRequest(f"body: {name}", 400, None, headers={"Content-Type": MULTIPART}, body=body)
        for name, body in bodies.items()
    ]


def path_cases() -> list[BadRequest]:
    not_found = (
        ("POST", "/v1/inpaint/../../etc/passwd"),
        ("POST", "/v2/inpaint"),
        ("POST", "/v1/%69npaint%00"),
        ("GET", "/v1/results/../../../etc/passwd"),
        ("GET", "/v1/results/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
        ("GET", "/v1/results/nobody"),
        ("GET", "/v1/results/" + "x" * 5_000),
        ("GET", "/v1/jobs/../jobs/x"),
        ("DELETE", "/v1/jobs/nobody"),
    )
    return [
        *(BadRequest(f"path: {m} {path[:40]}", 404, "not_found", path, m) for m, path in not_found),
        *(BadRequest(f"method: {m}", 405, "method_not_allowed", "/v1/inpaint", m) for m in ("GET", "PUT", "DELETE")),
        BadRequest("not http at all", 400, None, whole=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)),
        BadRequest("http of version 9.9", 400, None, whole=b"POST /v1/inpaint HTTP/9.9\r\nHost: x\r\n\r\n"),
        BadRequest("a header without a colon", 400, None, whole=b"GET /livez HTTP/1.1\r\nHost x\r\n\r\n"),
    ]


def cases() -> list[BadRequest]:
    """All of them, each with a name of its own."""
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
