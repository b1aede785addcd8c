"""`--set NAME=VALUE` of benchmarks/texture changes a parameter of the texture stage for one run."""

from __future__ import annotations

import pytest

from benchmarks.texture.__main__ import changes


def test_a_value_has_the_type_of_the_parameter() -> None:
    assert changes(["rounds=2", "low_share=1"]) == {"rounds": 2, "low_share": 1.0}
    assert isinstance(changes(["low_share=1"])["low_share"], float)


@pytest.mark.parametrize("text", ["round=2", "rounds", "rounds=two", "rounds=1.5"])
def test_a_mistake_is_named(text: str) -> None:
    with pytest.raises(SystemExit, match=f"--set {text}"):
        changes([text])
