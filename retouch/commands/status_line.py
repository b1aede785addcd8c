"""A status line on a terminal while something takes seconds, such as loading torch or a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def status_line(text: str, console: Console | None = None) -> Iterator[None]:
    """Show `text` with a spinner until the block ends; nothing if the output is not a terminal.

    Args:
        text: the action in progress.
        console: the output; standard error by default, so that standard output has only the result.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield
