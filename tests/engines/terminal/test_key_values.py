"""Flags of the form KEY=VALUE."""

from __future__ import annotations

import pytest
import typer

from engines.terminal.key_values import parse_key_values


def test_values_may_contain_equal_signs() -> None:
    assert parse_key_values(["a=b=c"], example="") == {"a": "b=c"}


@pytest.mark.parametrize("pair", ["levels", "=3", ""])
def test_a_pair_without_key_or_equal_sign_is_refused_with_an_example(pair: str) -> None:
    with pytest.raises(typer.BadParameter, match="write KEY=VALUE, as in --option levels=7"):
        parse_key_values([pair], example="--option levels=7")
