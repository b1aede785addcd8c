"""The examples of the OpenAPI document against the messages of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from service.core.errors import InvalidOption
from service.core.schemas import InpaintOptions
from service.intake.options import options_of
from service.web import openapi_texts

SOURCES = Path(__file__).parents[4] / "service"
FIELD = "(`image`: )?"
ADVICE = "(; send equal sizes, or mask_resize=nearest)?"
"""What errors add to their messages for this server's own API."""


def messages_of_the_code() -> list[list[str | None]]:
    """Return every text of the sources that can be a message, except the examples, in pieces, with None for a value."""
    messages = []
    for path in {*SOURCES.rglob("*.py")} - {Path(openapi_texts.__file__)}:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
            values = [piece.value if isinstance(piece, ast.Constant) else None for piece in pieces]
            texts = [value if isinstance(value, str) else None for value in values]
            if sum(map(len, filter(None, texts))) >= 12:  # shorter ones, such as f"{a}: {b}", match anything
                messages.append(texts)
    return messages


def is_made_of(example: str, message: list[str | None]) -> bool:
    """Return whether an example is a message with its values filled in.

    Only a few messages have all their pieces in an example; a pattern is compiled for those alone, as there are
    thousands.
    """
    if not all(piece is None or piece in example for piece in message):
        return False
    pattern = "".join(".+" if piece is None else re.escape(piece) for piece in message)
    return re.fullmatch(FIELD + pattern + ADVICE, example) is not None


def test_the_examples_of_errors_are_messages_of_the_code() -> None:
    examples = {code: text for code, text in openapi_texts.DETAILS.items() if code != "invalid_option"}
    messages = messages_of_the_code()
    unknown = {
        code: text for code, text in examples.items() if not any(is_made_of(text, message) for message in messages)
    }
    assert unknown == {}


def test_the_example_of_an_invalid_option_is_the_message_for_one() -> None:
    with pytest.raises(InvalidOption) as refused:
        options_of(InpaintOptions, {"mask_mode": "green"})
    assert openapi_texts.DETAILS["invalid_option"] == str(refused.value)
