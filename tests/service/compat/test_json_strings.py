"""The finder of strings in a JSON text."""

from __future__ import annotations

import pytest

from service.compat.json_strings import number_of, strings_in


def found(text: bytes) -> list[tuple[bytes, bool]]:
    return [(text[start:end], is_name) for start, end, is_name in strings_in(text)]


def test_names_are_told_from_values() -> None:
    text = b'{"a" \n:"b", "": ["c", "d"], "e": {"f": ""}}'
    names, values = ([one for one, is_name in found(text) if is_name == kind] for kind in (True, False))
    assert (names, values) == ([b"a", b"", b"e", b"f"], [b"b", b"c", b"d", b""])


@pytest.mark.parametrize("backslashes", [1, 2, 3, 63, 64, 65, 128, 129])
def test_an_escaped_quote_is_part_of_its_string_and_an_escaped_backslash_is_not_an_escape(backslashes: int) -> None:
    run = b"\\" * backslashes
    string = run + (b'"' if backslashes % 2 else b"")
    assert found(b'["%s", "b"]' % string) == [(string, False), (b"b", False)]


def test_an_unfinished_string_ends_with_the_text() -> None:
    assert found(b'{"a": "b') == [(b"a", True), (b"b", False)]
    assert found(rb'{"a\"') == [(rb"a\"", False)]
    assert found(b"") == found(b"[1]") == []


def test_a_character_is_counted_up_to_a_limit() -> None:
    assert [number_of(b",", b",a,,", most) for most in (0, 2, 3, 9)] == [0, 2, 3, 3]
    assert [number_of(b",", b"b,a,," + b"a" * 200_000, most) for most in (0, 2, 3, 9)] == [0, 2, 3, 3]
    assert number_of(b",", b"", 3) == 0
