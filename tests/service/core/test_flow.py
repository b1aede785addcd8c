"""Flows and the owners of their results."""

from __future__ import annotations

import pytest

from service.core.flow import ANYONE, Flow, owner_of


@pytest.mark.parametrize(
    ("client", "owner"),
    [("key:1f2e3d4c", "1f2e3d4c"), ("address:127.0.0.1", ""), ("address:key:1", ""), ("", ""), ("1f2e3d4c", "")],
)
def test_only_a_key_owns_results(client: str, owner: str) -> None:
    assert owner_of(client) == Flow(client).owner == owner
    assert ANYONE.owner == ""
