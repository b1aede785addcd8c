"""No word of a table is cut, whatever the terminal's width."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from engines.terminal.tables import column_widths, print_table

NAME = "a" * 64 + "/12"
FACTS = ("inpaint", "pconv_nvidia", "sides 256, 384, 512 (pad)", "[red]52.4 dB[/] (onnx-fp16, dress.jpg, full mask)")
PATH = "/srv/" + "folder/" * 20 + "manifest.json"


def printed(width: int, *rows: tuple[str, ...]) -> str:
    table = Table()
    for heading in ("model", "task", "generator", "sizes", "parity, worst case"):
        table.add_column(heading, no_wrap=heading == "model")
    for row in rows:
        table.add_row(*row)
    text = StringIO()
    print_table(table, Console(file=text, width=width))
    return text.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
def test_names_and_words_are_whole_in_terminals_of_any_width(width: int) -> None:
    text = printed(width, (NAME, *FACTS), ("photos/5", *FACTS))
    for word in (NAME, "generator", "pconv_nvidia", "(onnx-fp16,", "dress.jpg,"):
        assert word in text
    assert "red" not in text
    assert "…" not in text


def test_a_table_that_fits_is_as_wide_as_its_lines_and_no_wider_than_the_terminal() -> None:
    text = printed(200, (NAME, *FACTS))
    assert "52.4 dB (onnx-fp16, dress.jpg, full mask)" in text
    assert max(map(len, text.splitlines())) < 200
    assert max(map(len, printed(80, ("photos/5", *FACTS)).splitlines())) <= 80


def test_a_long_path_in_a_reason_is_folded_and_not_lost() -> None:
    text = printed(80, ("photos/5", "", "", "", PATH))
    assert max(map(len, text.splitlines())) <= 100
    assert "".join(line.rsplit("│", 2)[-2].strip() for line in text.splitlines() if "│" in line).endswith(PATH)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1), st.integers(-10, 400))
def test_widths_use_the_room_there_is_and_are_never_below_the_least(pairs: list[tuple[int, int]], room: int) -> None:
    spans = [(least, least + more) for least, more in pairs]
    widths = column_widths(spans, room)
    assert all(least <= width <= most for width, (least, most) in zip(widths, spans, strict=True))
    assert sum(widths) <= max(room, sum(least for least, _ in spans))
