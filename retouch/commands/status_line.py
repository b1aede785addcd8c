"""One line on a terminal that says what is waited for: loading torch or a model takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def status_line(text: str, console: Console | None = None) -> Iterator[None]:
    """Show `text` with a spinner until the block ends; nothing where nobody looks on.

    Args:
        text: what is being done.
        console: where to; the standard error by default, so that the output holds the result alone.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield
