"""Reads a multipart/form-data body (RFC 7578) into memory, within limits.

multipart.py parses the parts. The body's size is checked first by its Content-Length, then again while it is read. A
call without files also accepts application/x-www-form-urlencoded (WHATWG URL Standard, 5), many clients' default.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from engines.validation import validation_message
from service.core.errors import Cancelled, InvalidOption, InvalidRequest, TooLarge, UnsupportedType
from service.web.multipart import FEW_PARTS, MAX_FIELD_BYTES, MAX_PARTS, Part, PartLimits, PartsReader

OptionsT = TypeVar("OptionsT", bound=BaseModel)
_NAMES_SHOWN = 8
FORM_TYPE = "multipart/form-data"
URL_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_URL_FORM_BYTES = 3 * MAX_PARTS * MAX_FIELD_BYTES
"""Size limit of a URL-encoded form in bytes: that of all fields, with every byte escaped as %XX."""


@dataclass(frozen=True, slots=True)
class Form:
    """The file parts and text fields of a body, by name."""

    files: dict[str, bytes]
    fields: dict[str, str]

    def file(self, name: str) -> bytes:
        """Return the bytes of a file part.

        Raises:
            InvalidRequest: the part is missing or empty.
        """
        data = self.files.get(name)
        if data is None:
            raise InvalidRequest(
                f"the file part `{name}` is missing; send it as multipart/form-data", code="missing_part"
            )
        if not data:
            raise InvalidRequest(f"the file part `{name}` is empty", code="empty_part")
        return data

    def options(self, model: type[OptionsT]) -> OptionsT:
        """Validate the text fields as options; an empty field counts as absent, because browsers send empty fields.

        Raises:
            InvalidOption: a field is unknown or out of range; the message names it.
        """
        known = model.model_fields
        try:
            return model.model_validate({name: text for name, text in self.fields.items() if text or name not in known})
        except ValidationError as error:
            message = validation_message(error, "field", known)
            unknown = any(name not in known for name in self.fields)
            raise InvalidOption(f"{message} (fields are {', '.join(known)})" if unknown else message) from error


def refuse_query(query_string: bytes) -> None:
    """Refuse options in the query string, because options are form fields and would be ignored there.

    Query strings would also end up in the logs of proxies.

    Raises:
        InvalidOption: there is a query string; the message has its parameters' names, but not their values.
    """
    if not query_string:
        return
    names = [name for name, _ in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)]
    shown = ", ".join(f"`{name[:80]}`" for name in names[:_NAMES_SHOWN]) or "a query"
    raise InvalidOption(
        f"{shown} in the URL: options are form fields; send them as multipart/form-data (curl: -F format=png), "
        "without a query string"
    )


async def read_form(
    request: Request, files: Collection[str], count_bytes: Callable[[int], None], *, max_body_bytes: int
) -> Form:
    """Read a request's form; `files` are the names of the parts that must be files.

    Without `files`, an empty body of any type and a URL-encoded form are accepted, too. `count_bytes` gets the size of
    every piece before it is kept, and may raise.

    Raises:
        UnsupportedType: the body is of another type, or is compressed.
        TooLarge: the body is larger than `max_body_bytes`, or than a URL-encoded form may be.
        InvalidRequest: the body is malformed, or a part is repeated or of the wrong kind.
        Cancelled: the client left before the body was complete.
    """
    if not files and media_type(request) != FORM_TYPE:
        check_encoding(request)
        if media_type(request) == URL_FORM_TYPE:
            return await _read_url_form(request, count_bytes, max_body_bytes)
        if await _is_empty(request):
            return Form({}, {})
        raise UnsupportedType(f"send {FORM_TYPE} or {URL_FORM_TYPE}, not {_named_type(request)}")
    return _sort_parts(await read_parts(request, count_bytes, max_body_bytes=max_body_bytes), files)


async def read_parts(
    request: Request, count_bytes: Callable[[int], None], *, max_body_bytes: int, limits: PartLimits = FEW_PARTS
) -> list[Part]:
    """Read the parts of a request's form, whatever their names.

    Raises:
        UnsupportedType, TooLarge, InvalidRequest, Cancelled: as raised by `read_form`.
    """
    check_encoding(request)
    if media_type(request) != FORM_TYPE:
        raise UnsupportedType(f"send {FORM_TYPE}, not {_named_type(request)}")
    reader = PartsReader(request.headers.get("content-type", ""), limits)
    async for chunk in read_up_to_limit(request, max_body_bytes):
        count_bytes(len(chunk))
        reader.feed(chunk)
    return reader.finish()


def media_type(request: Request) -> str:
    """Return the media type of a request's body, in lower case and without parameters; empty if there is none."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def check_encoding(request: Request) -> None:
    """Refuse a compressed body, which could decompress to any size; pictures are already compressed.

    Raises:
        UnsupportedType: the body has a Content-Encoding.
    """
    announced = ", ".join(request.headers.getlist("content-encoding"))
    if announced.strip().lower() not in ("", "identity"):
        raise UnsupportedType(
            f"the body has Content-Encoding {announced[:80]!r}; send it as it is, without Content-Encoding",
            code="unsupported_encoding",
        )


def _named_type(request: Request) -> str:
    named = request.headers.get("content-type", "")[:80]
    return repr(named) if named else "a body without a Content-Type"


async def _read_url_form(request: Request, count_bytes: Callable[[int], None], max_body_bytes: int) -> Form:
    """Read a URL-encoded form: fields in UTF-8, each once.

    Raises:
        TooLarge, InvalidRequest, Cancelled: as raised by `read_form`.
    """
    body = bytearray()
    async for chunk in read_up_to_limit(request, max_body_bytes):
        count_bytes(len(chunk))
        body += chunk
        if len(body) > _MAX_URL_FORM_BYTES:
            raise TooLarge(f"the form is longer than {_MAX_URL_FORM_BYTES // 1024} KiB; send fewer or shorter fields")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARTS)
    except ValueError as error:
        raise InvalidRequest(
            f"the body is not a URL-encoded form of at most {MAX_PARTS} fields: send name=value pairs in UTF-8, joined "
            "by &, with every other character escaped as %XX"
        ) from error
    form = Form({}, {})
    for name, text in pairs:
        if name in form.fields:
            raise InvalidRequest(f"the field {name[:80]!r} is sent twice; send it once", code="repeated_part")
        if len(text.encode()) > MAX_FIELD_BYTES:
            raise InvalidRequest(f"the field {name[:80]!r} is longer than {MAX_FIELD_BYTES} bytes; send a shorter one")
        form.fields[name] = text
    return form


async def _is_empty(request: Request) -> bool:
    more = True
    while more:
        chunk, more = await _next_piece(request)
        if chunk:
            return False
    return True


async def _next_piece(request: Request) -> tuple[bytes, bool]:
    """Return the next piece of a body, and whether there are more.

    Used in place of Starlette's `Request.stream`, whose nested generators take longer than parsing the form.

    Raises:
        Cancelled: the client left before the body was complete.
    """
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise Cancelled("the client disconnected before its body was complete")
    return message.get("body", b""), message.get("more_body", False)


async def read_up_to_limit(request: Request, max_body_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield a request's body in pieces.

    Raises:
        TooLarge: the body is larger than `max_body_bytes`, by its Content-Length or as received.
        Cancelled: the client left before the body was complete.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_body_bytes:
        raise _too_large_error(max_body_bytes)
    received, more = 0, True
    while more:
        chunk, more = await _next_piece(request)
        received += len(chunk)
        if received > max_body_bytes:
            raise _too_large_error(max_body_bytes)
        if chunk:
            yield chunk


def _too_large_error(max_body_bytes: int) -> TooLarge:
    mib = max_body_bytes / 2**20
    limit = f"{mib:.0f} MiB" if mib >= 1 else f"{mib * 1024:.0f} KiB"
    return TooLarge(f"the body is larger than {limit}; send less, such as a smaller image")


def _sort_parts(parts: list[Part], files: Collection[str]) -> Form:
    form = Form({}, {})
    for part in parts:
        _add_part(form, part, files)
    return form


def _add_part(form: Form, part: Part, files: Collection[str]) -> None:
    name = part.name
    if name in form.files or name in form.fields:
        raise InvalidRequest(f"the part {name[:80]!r} is sent twice; send it once", code="repeated_part")
    if not part.is_file:
        if name not in files:
            form.fields[name] = part.text
        elif part.size:  # Swagger UI sends an empty text if no file was chosen
            raise InvalidRequest(f"`{name}` is a text field; send it as a file part", code="missing_part")
    elif name in files:
        if part.file_name or part.size:  # a browser sends neither if no file was chosen
            form.files[name] = part.data
    else:
        known = f"file parts are {', '.join(files)}" if files else "this endpoint takes no files"
        raise InvalidRequest(f"unexpected file part {name[:80]!r}; {known}")
