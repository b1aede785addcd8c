"""Requests to the server, as values. Pure, except for `read_call`; new idempotency keys come from an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from retouch.client.api_key import fits_header
from retouch.client.errors import KeyUnusable, OptionUnusable
from retouch.client.options import Priority, Task
from retouch.client.sources import Source, file_bytes

_PICTURES: dict[Task, tuple[str, ...]] = {"inpaint": ("image", "mask"), "translate": ("image",), "generate": ()}
"""The pictures that a call of each task takes as arguments."""
_FILES = ("instance", "reference")
"""Options that are files."""
_HEADERS = ("deadline_s", "priority", "request_id", "idempotency_key")
"""Options that are headers; all others are fields of the form."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, which may be sent several times."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    within_s: float | None = None
    """Longest wait for the reply, in seconds, if shorter than the client's; None for the client's."""

    def returning(self, request_id: str) -> Call:
        """Return the same request with the request id of its refusal: the server admits a returning request first."""
        return replace(self, headers={**self.headers, "X-Request-ID": request_id}) if request_id else self

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when it is unknown if it arrived; a job without a key could be made twice."""
        return "Prefer" not in self.headers or "Idempotency-Key" in self.headers

    @property
    def has_deadline(self) -> bool:
        """Whether the caller set a deadline, after which another try is useless."""
        return "X-Request-Timeout-Ms" in self.headers

    def multipart(self) -> dict[str, tuple[str | None, bytes | str]] | None:
        """Return the parts of the body, for httpx; None without a body. Fields are parts even where there are no files.

        Each file is named after its part, so that the caller's file names are not disclosed.
        """
        if self.method != "POST":
            return None
        return {
            **{name: (name, data) for name, data in self.files.items()},
            **{name: (None, value) for name, value in self.fields.items()},
        }


def read_call(
    task: Task, pictures: Mapping[str, Source], options: Mapping[str, Any], new_key: Callable[[], str], *, job: bool
) -> Call:
    """Return the request of a call with its pictures read, which blocks; arguments as for `picture_call`.

    Raises:
        PictureUnusable: a picture, or an option that is a file, cannot be sent.
        OptionUnusable: there is no such task, or it takes other pictures; or as for `picture_call`.
        KeyUnusable: as for `picture_call`.
    """
    _check_pictures(task, tuple(pictures))
    given = {**pictures, **{name: options[name] for name in _FILES if options.get(name) is not None}}
    files = {name: file_bytes(source) for name, source in given.items()}
    return picture_call(task, files, options, new_key, job=job)


def _check_pictures(task: Task, given: tuple[str, ...]) -> None:
    if task not in _PICTURES:
        raise OptionUnusable(f"{task!r} is not a task; pass inpaint, translate or generate")
    if given != _PICTURES[task]:
        takes, got = (" and ".join(names) or "no picture" for names in (_PICTURES[task], given))
        raise OptionUnusable(f"submit({task!r}, …) takes {takes}; got {got}")


def picture_call(
    task: Task, files: Mapping[str, bytes], options: Mapping[str, Any], new_key: Callable[[], str], *, job: bool
) -> Call:
    """Return the request of a call for pictures.

    Args:
        task: inpaint, translate or generate.
        files: encoded files by the name of their part.
        options: keyword arguments of the call; None counts as left out.
        new_key: makes an idempotency key.
        job: whether to request a job.

    Raises:
        KeyUnusable: the idempotency key or the request id has characters other than printable ASCII.
        OptionUnusable: the priority is not valid.
    """
    fields = {
        name: _text(value)
        for name, value in options.items()
        if value is not None and name not in _FILES and name not in _HEADERS
    }
    headers = {"Accept": "multipart/mixed, */*", **_option_headers(options)}
    if (key := _idempotency_key(options, new_key)) is not None:
        headers["Idempotency-Key"] = key
    for name, value in headers.items():
        if not fits_header(value):
            raise KeyUnusable(f"{name} {value!r} holds characters that a header cannot carry; use a UUID")
    if job:
        headers["Prefer"] = "respond-async"
    return Call("POST", f"/v1/{task}", headers, files, fields)


def list_call(options: Mapping[str, Any], cursor: str | None) -> Call:
    """Return the request of a page of stored results.

    Args:
        options: keyword arguments of the call, see `ResultFilter`; None counts as left out.
        cursor: the cursor of the page; None for the first page.
    """
    query = {name: _query_text(value) for name, value in {**options, "cursor": cursor}.items() if value is not None}
    return Call("GET", f"/v1/results?{urlencode(query)}" if query else "/v1/results")


def _query_text(value: object) -> str:
    return value.astimezone().isoformat() if isinstance(value, datetime) else str(value)


def _idempotency_key(options: Mapping[str, Any], new_key: Callable[[], str]) -> str | None:
    """Return the caller's key, or a new one; None if nothing may be stored, because answers to keys are stored."""
    if "idempotency_key" in options:
        chosen = options["idempotency_key"]
        return None if chosen is None else _header_text(chosen)
    return None if options.get("save") is False else new_key()


def _option_headers(options: Mapping[str, Any]) -> dict[str, str]:
    headers = {}
    if (deadline_s := options.get("deadline_s")) is not None:
        headers["X-Request-Timeout-Ms"] = f"{deadline_s * 1e3:.3f}"
    if (priority := options.get("priority")) is not None:
        headers["X-Priority"] = _header_text(priority)
        if headers["X-Priority"].lower() not in map(str, get_args(Priority)):
            raise OptionUnusable(f"priority is {priority!r}; pass low, normal, high, or 0 (last) to 9 (first)")
    if (request_id := options.get("request_id")) is not None:
        headers["X-Request-ID"] = _header_text(request_id)
    return headers


def _header_text(value: object) -> str:
    """Return the text of a header without spaces at its ends, which are no part of a header's value."""
    return str(value).strip()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
