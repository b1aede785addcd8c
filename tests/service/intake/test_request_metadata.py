"""The id, timeout and priority that a client gives its request."""

from __future__ import annotations

import pytest

from service.core.errors import InvalidOption
from service.intake.request_metadata import acceptable_request_id, parse_priority, parse_timeout_s


def test_the_deadline_is_read_in_milliseconds() -> None:
    assert parse_timeout_s("1500") == 1.5
    assert parse_timeout_s(None) is None


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf", "1e12", "1_0", "0x10", "1e-400"])
def test_an_absurd_deadline_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="X-Request-Timeout-Ms"):
        parse_timeout_s(text)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-1.2:3_4", "abc-1.2:3_4"), ("a" * 129, None), ("new\nline", None), ("", None), (None, None)],
)
def test_a_clients_request_id_is_kept_only_if_it_is_safe_to_log(given: str | None, kept: str | None) -> None:
    assert acceptable_request_id(given) == kept


@pytest.mark.parametrize(
    ("text", "level"), [(None, 5), ("high", 8), (" Normal ", 5), ("low", 2), ("0", 0), ("9", 9), ("7", 7)]
)
def test_a_priority_is_a_name_or_a_digit(text: str | None, level: int) -> None:
    assert parse_priority(text) == level


@pytest.mark.parametrize("text", ["", "10", "-1", "urgent", "5.0", "٣"])
def test_any_other_priority_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="X-Priority"):
        parse_priority(text)
