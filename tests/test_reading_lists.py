"""The lists for readers with fresh eyes (benchmarks/reading/lists.py) are drawn from the source by a seed alone."""

from __future__ import annotations

import re

import pytest

from benchmarks.reading.lists import ROOT, changes, definitions, draw


def test_a_change_is_one_line_without_the_tests_that_it_cites() -> None:
    changelog = "# 0.2\n\n- A picture\n  is saved (`tests/a.py`).\n\nProse.\n- Another, `tests/b.py`, change.\n"
    assert changes(changelog) == ["A picture is saved.", "Another, change."]


def test_definitions_are_classes_functions_and_methods_without_dunder_and_inner_ones() -> None:
    source = (
        'class A:\n    """An A."""\n    def __init__(self): ...\n    def b(self): ...\ndef c():\n    def d(): ...\n'
    )
    found = {(each.name, each.docstring) for each in definitions("a.py", source)}
    assert found == {("A", "An A."), ("A.b", ""), ("c", "")}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the lists are drawn from what git tracks")
def test_the_same_seed_draws_the_same_lists_and_another_one_others() -> None:
    one, again, other = draw(ROOT, 1), draw(ROOT, 1), draw(ROOT, 2)
    assert one == again
    assert one["names.md"] != other["names.md"]
    for name in ("names.md", "docstrings.md"):
        assert len(re.findall(r"(?m)^\d+\. `[\w.]+` in \S+", one[name])) == 60
    assert "tests/" not in one["changes.md"]
