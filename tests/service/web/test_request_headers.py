"""Parsing of request headers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from service.core.errors import UnsupportedType
from service.web.request_headers import (
    RequestHead,
    check_json,
    wanted_form,
    wanted_format,
    wants_job,
    wants_json,
    wants_multipart,
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "png"),
        ("*/*", "png"),
        ("image/jpeg", "jpeg"),
        ("image/png;q=0.5, image/webp", "webp"),
        ("image/jpeg;q=0, image/webp;q=0.1", "webp"),
        ("text/html, image/*", "png"),
        ("IMAGE/JPEG", "jpeg"),
        ("image/jpeg;q=abc", "png"),
        (",,;q=1,", "png"),
        ("image/png;q=0, image/jpeg", "jpeg"),
        ("image/png;q=0", "jpeg"),
        ("image/png;q=0, */*", "jpeg"),
        ("image/*;q=0.5, image/png;q=0, image/jpeg;q=0.000", "webp"),
        ("image/*;q=0, image/webp;q=0.1, */*", "webp"),
        ("image/jpeg;q=0.1, */*", "png"),
        ("image/avif,image/webp,image/apng,image/*,*/*;q=0.8", "webp"),
        ("image/webp, image/jpeg", "webp"),
        ("image/*;q=0", "png"),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, expected: str) -> None:
    assert wanted_format(accept) == expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", True),
        ("", False),
        ("image/png, application/json;q=0.5", False),
        ("application/json, image/png;q=0.5", True),
        ("*/*", False),
        ("text/html", False),
        ("image/*;q=0, */*", True),
        ("image/*;q=0, application/json;q=0", False),
    ],
)
def test_json_is_given_where_it_is_wanted_most(accept: str, expected: bool) -> None:
    assert wants_json(accept) is expected


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [("respond-async", True), ("wait=10, Respond-Async; x=1", True), ("wait=10", False), ("", False)],
)
def test_a_job_is_made_where_the_client_prefers_one(prefer: str, expected: bool) -> None:
    assert wants_job(prefer) is expected


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("multipart/mixed", True),
        ("image/webp, Multipart/*", True),
        ("application/json;q=0.5, multipart/mixed", True),
        ("application/json, multipart/mixed", False),
        ("multipart/mixed;q=0", False),
        ("application/json;q=0, */*", True),
        ("application/json;q=0", True),
        ("multipart/mixed;q=0, application/json;q=0", False),
        ("*/*", False),
        ("image/png", False),
        ("", False),
    ],
)
def test_several_results_are_json_unless_multipart_is_wanted_more(accept: str, expected: bool) -> None:
    assert wants_multipart(accept) is expected


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("accept", ["", "*/*", "image/webp", "application/json", "multipart/mixed, */*;q=0.1"])
def test_the_wanted_form_asks_for_what_the_header_asks_for(accept: str, several: bool) -> None:
    form = wanted_form(accept, several=several)
    asks = wants_multipart if several else wants_json
    assert asks(form) == asks(accept)
    assert wanted_form("", several=several) == wanted_form("*/*", several=several) == "*/*"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_a_body_that_says_it_is_json_is_taken_for_json(kind: str) -> None:
    check_json(Headers({"Content-Type": kind}))


@pytest.mark.parametrize(
    "kinds", [[], ["text/plain"], ["multipart/form-data"], ["application/json", "text/plain"], [""]]
)
def test_a_body_that_a_form_of_another_site_could_send_is_refused(kinds: list[str]) -> None:
    headers = Headers(raw=[(b"content-type", kind.encode()) for kind in kinds])
    with pytest.raises(UnsupportedType, match="application/json"):
        check_json(headers)


def test_a_request_head_answers_as_starlettes_headers_do() -> None:
    lines = [(b"host", b"a"), (b"accept", b"image/png"), (b"accept", b"text/html"), (b"x-caf\xe9", b"\xe9")]
    scope = {"type": "http", "headers": lines}
    head, plain = RequestHead(scope), Headers(scope=scope)
    for name in ("Host", "accept", "ACCEPT", "x-café", "missing"):
        assert head.get(name) == plain.get(name)
        assert head.get(name, "other") == plain.get(name, "other")
        assert head.getlist(name) == plain.getlist(name)
        assert (name in head) == (name in plain)
    assert head["Accept"] == plain["Accept"]
    assert list(head.items()) == list(plain.items())
    with pytest.raises(KeyError):
        head["missing"]


def test_a_list_of_lines_that_is_changed_leaves_the_head_as_it_was() -> None:
    head = RequestHead({"type": "http", "headers": [(b"accept", b"a")]})
    head.getlist("accept").append("b")
    assert head.getlist("accept") == ["a"]
