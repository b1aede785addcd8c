"""No client gets another's reply: a short run of benchmarks/requests/boundaries.py."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.requests.boundaries import ALONE, measure, passed, row
from benchmarks.requests.owners import Counts, judge
from benchmarks.requests.proxies import PROXIES
from benchmarks.requests.variants import Exchange, Request, exchanges

pytestmark = pytest.mark.slow

_ASKED = argparse.Namespace(seed=7, exchanges=120, pause=0.03, at_once=24, clients=3)

installed = [
    pytest.param(
        name, marks=pytest.mark.skipif(not here, reason=f"{name.split(',')[0]} is not installed (.ci/run, make)")
    )
    for name, (here, _) in PROXIES.items()
]


@pytest.mark.parametrize(("front", "workers"), [(ALONE, 0), (ALONE, 2)])
def test_every_client_of_the_server_gets_its_own_replies(front: str, workers: int) -> None:
    counts, connections = measure(front, workers, _ASKED)
    found = row(front, workers, counts, connections)
    assert passed(found), found
    assert counts.sent_again == 0
    assert counts.honest_connections == _ASKED.clients


@pytest.mark.parametrize("front", installed)
def test_every_client_of_a_proxy_with_pooled_connections_gets_its_own_replies(front: str) -> None:
    counts, connections = measure(front, 0, _ASKED)
    found = row(front, 0, counts, connections)
    assert passed(found), found
    assert counts.honest_connections == _ASKED.clients
    assert connections < counts.requests + counts.honest, "no connection was used twice"


def test_the_same_seed_makes_the_same_requests() -> None:
    first, second = (list(exchanges(3, 60, "key", b"picture", b"mask")) for _ in range(2))
    assert first == second
    assert len({exchange.kind for exchange in first}) >= 9
    assert all(len(b"".join(exchange.pieces)) > 40 for exchange in first)


ASKED = Exchange("plain", (), (Request("c1-0", 200, b""), Request("c1-1", 401, b"")), "c1-hidden")


@pytest.mark.parametrize(
    ("seen", "answered", "wrong_client", "hidden", "surplus"),
    [
        ([("c1-0", 200), ("c1-1", 401)], 2, 0, 0, 0),
        ([("c1-0", 200)], 1, 0, 0, 0),
        ([("c1-0", 200), ("c1-1", 200)], 1, 0, 0, 0),
        ([("c1-0", 200), ("c11-0", 401)], 1, 1, 0, 0),
        ([("c1-0", 200), ("honest-1-7", 200)], 1, 1, 0, 0),
        ([("c1-0", 200), ("c1-hidden", 200)], 1, 0, 1, 0),
        ([("c1-0", 200), ("c1-1", 401), ("", 400)], 2, 0, 0, 1),
        ([("c1-1", 401), ("c1-0", 200)], 2, 0, 0, 1),
    ],
)
def test_replies_are_judged_by_whose_they_are(
    seen: list[tuple[str, int]], answered: int, wrong_client: int, hidden: int, surplus: int
) -> None:
    counts = Counts()
    judge(ASKED, seen, counts)
    assert counts.well_formed == 2
    assert (counts.answered, counts.wrong_client, counts.hidden, counts.surplus) == (
        answered,
        wrong_client,
        hidden,
        surplus,
    )
