"""Tables for terminals in which no word is cut: both command lines of this project print them.

rich cuts words, and then whole columns, of a table that is wider than the terminal (80 columns without a terminal).
But people copy names from a table into the next command, so here such a table becomes wider than the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

_MAX_WORD = 40
"""Width in cells beyond which words of prose (a path in a reason, say) are folded; names are never folded."""


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table without cutting a word: wider than the terminal if its words need that.

    Columns that are declared `no_wrap` hold names: they are as wide as the longest one.

    Args:
        table: its cells are text or markup; the widths of its columns are set here.
        console: the output; standard output by default.
    """
    console = console or Console()
    spans = [_column_span(column, console) for column in table.columns]
    borders = 3 * len(spans) + 1
    for column, width in zip(table.columns, column_widths(spans, console.width - borders), strict=True):
        column.width, column.overflow = width, "fold"
    table.width = borders + sum(column.width or 0 for column in table.columns)
    console.print(table, crop=False)


def column_widths(spans: Sequence[tuple[int, int]], room: int) -> list[int]:
    """Return the width of each column in cells: its minimum, and a share of the remaining space.

    Columns that need the least additional space get it first.

    Args:
        spans: for each column, its minimum width and the width at which it needs no line breaks.
        room: the width of all columns together.
    """
    widths = [minimum for minimum, _ in spans]
    spare = room - sum(widths)
    waiting = sorted(range(len(spans)), key=lambda index: spans[index][1] - spans[index][0])
    while waiting and spare > 0:
        share = spare // len(waiting)
        index = waiting.pop(0)
        given = min(share, spans[index][1] - widths[index])
        widths[index] += given
        spare -= given
    return widths


def _column_span(column: Column, console: Console) -> tuple[int, int]:
    texts = [_plain_text(cell, console) for cell in (column.header, *column.cells)]
    words = [cell_len(word) for text in texts for word in text.split()]
    lines = [cell_len(line) for text in texts for line in text.splitlines()]
    widest = max(lines, default=0)
    return (widest, widest) if column.no_wrap else (min(max(words, default=0), _MAX_WORD), widest)


def _plain_text(cell: object, console: Console) -> str:
    return cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain
