"""The metadata of a call."""

from __future__ import annotations

import math

import pytest

from service.grpc.metadata import MetadataLines, address_of, allowed_s


def test_metadata_reads_like_header_lines() -> None:
    lines = MetadataLines([("x-api-key", "a"), ("X-API-Key", "b"), ("trace-bin", b"\xff")])
    assert lines.getlist("X-Api-Key") == ["a", "b"]
    assert (lines["x-api-key"], lines.get("trace-bin"), lines.get("none")) == ("a", "\xff", None)
    assert (len(lines), list(lines)) == (2, ["x-api-key", "trace-bin"])


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[2001:db8::7]:5000", "2001:db8::7"),
        ("unix:/tmp/socket", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_address_is_that_of_the_peer(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize(
    ("remaining_s", "header_s", "allowed"),
    [
        (None, None, None),
        (5.0, None, 5.0),
        (None, 3.0, 3.0),
        (5.0, 3.0, 3.0),
        (1.0, 3.0, 1.0),
        (0.0, None, 1e-6),
        (-7.0, None, 1e-6),
        (2.0**63, None, 86_400.0),
        (math.inf, None, 86_400.0),
        (math.nan, None, None),
    ],
)
def test_the_shorter_deadline_counts_and_none_is_longer_than_a_day(
    remaining_s: float | None, header_s: float | None, allowed: float | None
) -> None:
    assert allowed_s(remaining_s, header_s) == allowed
