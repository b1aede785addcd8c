from __future__ import annotations

import pytest

from export.foreign.declaration import Place, parse_channels
from export.foreign.messages import printable


@pytest.mark.parametrize(
    ("text", "place", "written"),
    [
        ("mask", Place(name="mask"), "mask"),
        ("input[3]", Place(name="input", channels=(3, 4)), "input[3:4]"),
        ("input[0:3]", Place(name="input", channels=(0, 3)), "input[0:3]"),
        ("odd[name]", Place(name="odd[name]"), "odd[name]"),
    ],
)
def test_place_is_an_input_or_channels_of_one(text, place, written):
    assert parse_channels(text) == place
    assert str(place) == written


def test_place_without_channels_in_its_range_is_refused():
    with pytest.raises(ValueError, match="holds no channel"):
        parse_channels("input[3:3]")


def test_words_of_a_file_cannot_steer_a_terminal():
    assert printable("a\x1b[2Jb\r\n") == "a�[2Jb��"
    assert len(printable("x" * 5000)) < 2010
