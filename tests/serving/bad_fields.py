"""Bad parts, fields, headers, bodies and paths, each with its documented answer."""

from __future__ import annotations

import zlib

from tests.serving import image_files as files
from tests.serving.bad_request import (
    BOUNDARY,
    IMAGE_PART,
    MASK_PART,
    MULTIPART,
    PHOTO,
    BadRequest,
    body_of,
    grey,
    part,
    with_field,
    with_headers,
    with_parts,
)


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
        "format": ("gif", " ", "PNG "),
        "quality": ("0", "101", "-5", "1e9", "abc", " ", "NaN", "9" * 400),
        "seed": ("-1", str(2**63), "1.5", "seed", "inf"),
        "strategy": ("magic", "AUTO"),
        "texture": ("drawn", "COPIED", "1"),
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
            " ",
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
        BadRequest("http of version 9.9", 400, None, whole=b"POST /v1/inpaint HTTP/9.9\r\nHost: localhost\r\n\r\n"),
        BadRequest("a header without a colon", 400, None, whole=b"GET /livez HTTP/1.1\r\nHost x\r\n\r\n"),
    ]
