"""The wishes that headers express."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from service.core.errors import InvalidOption, UnsupportedType
from service.web.request_headers import (
    acceptable_request_id,
    asked_priority,
    asked_timeout_s,
    check_json,
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


def test_the_deadline_is_read_in_milliseconds() -> None:
    assert asked_timeout_s("1500") == 1.5
    assert asked_timeout_s(None) is None


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf", "1e12", "1_0", "0x10", "1e-400"])
def test_an_absurd_deadline_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="X-Request-Timeout-Ms"):
        asked_timeout_s(text)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1.2:3_4", "abc-1.2:3_4"), ("a" * 129, None), ("new\nline", None), ("", None), (None, None)],
)
def test_a_clients_request_id_is_kept_only_if_it_is_safe_to_log(given: str | None, kept: str | None) -> None:
    assert acceptable_request_id(given) == kept


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("multipart/mixed", True),
        ("image/webp, Multipart/*", True),
        ("application/json;q=0.5, multipart/mixed", True),
        ("application/json, multipart/mixed", False),
        ("multipart/mixed;q=0", False),
        ("*/*", False),
        ("image/png", False),
        ("", False),
    ],
)
def test_several_results_are_json_unless_multipart_is_wanted_more(accept: str, expected: bool) -> None:
    assert wants_multipart(accept) is expected


@pytest.mark.parametrize(
    ("text", "level"), [(None, 5), ("high", 8), (" Normal ", 5), ("low", 2), ("0", 0), ("9", 9), ("7", 7)]
)
def test_a_priority_is_a_name_or_a_digit(text: str | None, level: int) -> None:
    assert asked_priority(text) == level


@pytest.mark.parametrize("text", ["", "10", "-1", "urgent", "5.0", "٣"])
def test_any_other_priority_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="X-Priority"):
        asked_priority(text)


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
