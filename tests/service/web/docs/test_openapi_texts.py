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


def messages_of_the_code() -> list[str]:
    """Return a pattern of every text of the sources of which a message can be made, except the examples themselves."""
    patterns = []
    for path in {*SOURCES.rglob("*.py")} - {Path(openapi_texts.__file__)}:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [piece.value if isinstance(piece, ast.Constant) else None for piece in pieces]
            fixed = [text for text in texts if isinstance(text, str)]
            if len("".join(fixed)) >= 12:  # shorter ones, such as f"{a}: {b}", match anything
                patterns.append("".join(re.escape(text) if isinstance(text, str) else ".+" for text in texts))
    return patterns


def test_the_examples_of_errors_are_messages_of_the_code() -> None:
    examples = {code: text for code, text in openapi_texts.DETAILS.items() if code != "invalid_option"}
    patterns = messages_of_the_code()
    unknown = {
        code: text
        for code, text in examples.items()
        if not any(re.fullmatch(FIELD + pattern + ADVICE, text) for pattern in patterns)
    }
    assert unknown == {}


def test_the_example_of_an_invalid_option_is_the_message_for_one() -> None:
    with pytest.raises(InvalidOption) as refused:
        options_of(InpaintOptions, {"mask_mode": "green"})
    assert openapi_texts.DETAILS["invalid_option"] == str(refused.value)
