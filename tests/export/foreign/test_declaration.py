from __future__ import annotations

import pytest

from export.foreign.declaration import InputSlice, parse_input_slice
from export.foreign.messages import printable


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        ("mask", InputSlice(name="mask"), "mask"),
        ("input[3]", InputSlice(name="input", channels=(3, 4)), "input[3:4]"),
        ("input[0:3]", InputSlice(name="input", channels=(0, 3)), "input[0:3]"),
        ("odd[name]", InputSlice(name="odd[name]"), "odd[name]"),
    ],
)
def test_a_declared_input_is_a_whole_input_or_some_of_its_channels(text, expected, written):
    assert parse_input_slice(text) == expected
    assert str(expected) == written


def test_a_declared_input_without_channels_in_its_range_is_refused():
    with pytest.raises(ValueError, match="selects no channel"):
        parse_input_slice("input[3:3]")


def test_text_of_a_file_cannot_send_control_characters_to_a_terminal():
    assert printable("a\x1b[2Jb\r\n") == "a�[2Jb��"
    assert len(printable("x" * 5000)) < 2010
