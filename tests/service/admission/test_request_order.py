"""The order in which waiting requests are served."""

from __future__ import annotations

from collections import Counter

import pytest

from service.admission.request_order import FairScheduler, QueuePosition, requests_ahead
from service.core.flow import Flow

BUSY, QUIET = Flow("busy"), Flow("quiet")


def served(order: FairScheduler, turns: list[tuple[QueuePosition, Flow]], count: int) -> list[Flow]:
    """Serve `count` requests, in the order of their turns."""
    turns.sort()
    taken, turns[:] = turns[:count], turns[count:]
    for position, _ in taken:
        order.start(position)
    return [flow for _, flow in taken]


def test_requests_of_one_client_keep_their_order() -> None:
    order = FairScheduler()
    turns = [order.assign(BUSY) for _ in range(50)]
    assert turns == sorted(turns)


def test_a_single_request_is_served_before_hundreds_of_another_client() -> None:
    order = FairScheduler()
    turns = [(order.assign(BUSY), BUSY) for _ in range(200)]
    served(order, turns, 8)
    turns.append((order.assign(QUIET), QUIET))
    assert QUIET in served(order, turns, 2)


def test_two_busy_clients_are_served_in_turn() -> None:
    order = FairScheduler()
    turns = [(order.assign(BUSY), BUSY) for _ in range(100)] + [(order.assign(QUIET), QUIET) for _ in range(100)]
    assert Counter(served(order, turns, 80)) == {BUSY: 40, QUIET: 40}


def test_an_idle_client_accumulates_no_credit() -> None:
    order = FairScheduler()
    turns = [(order.assign(BUSY), BUSY) for _ in range(100)]
    served(order, turns, 100)
    turns = [(order.assign(flow), flow) for _ in range(20) for flow in (QUIET, BUSY)]
    assert Counter(served(order, turns, 20))[QUIET] <= 11


@pytest.mark.parametrize(("priority", "of_90"), [(8, 80), (6, 60), (5, 45), (2, 10)])
def test_each_level_has_twice_the_share_of_the_one_below_and_none_is_starved(priority: int, of_90: int) -> None:
    order, asked = FairScheduler(), Flow("a", priority)
    turns = [(order.assign(flow), flow) for _ in range(200) for flow in (asked, BUSY)]
    assert Counter(served(order, turns, 90))[asked] == pytest.approx(of_90, abs=2)


def test_finished_flows_are_forgotten() -> None:
    order = FairScheduler()
    for client in range(5000):
        order.start(order.assign(Flow(str(client))))
        order.start(order.assign(BUSY))
    assert len(order._ends) <= 1026


@pytest.mark.parametrize(
    ("flow", "waiting", "expected"),
    [
        pytest.param(BUSY, {}, 0, id="no request"),
        pytest.param(BUSY, {BUSY: 30}, 30, id="all of its own"),
        pytest.param(QUIET, {BUSY: 30}, 1, id="one of another client's"),
        pytest.param(QUIET, {BUSY: 30, QUIET: 4}, 4 + 5, id="its own, and as many of the other's"),
        pytest.param(QUIET, {BUSY: 3, QUIET: 4}, 4 + 3, id="never more than there are"),
        pytest.param(Flow("quiet", 8), {BUSY: 30}, 0.125, id="a high priority waits for few"),
        pytest.param(Flow("quiet", 2), {BUSY: 30}, 8, id="a low one for many"),
    ],
)
def test_requests_ahead_are_those_served_first(flow: Flow, waiting: dict[Flow, int], expected: float) -> None:
    assert requests_ahead(flow, waiting) == pytest.approx(expected)


def test_a_client_with_larger_requests_is_served_less_often() -> None:
    order = FairScheduler()
    turns = [(order.assign(BUSY, 3.0), BUSY) for _ in range(100)] + [(order.assign(QUIET), QUIET) for _ in range(100)]
    assert Counter(served(order, turns, 80)) == {BUSY: 20, QUIET: 60}


def test_withdrawn_requests_are_refunded() -> None:
    order = FairScheduler()
    for _ in range(50):
        order.assign(BUSY)
        order.refund(BUSY)
    turns = [(order.assign(QUIET), QUIET) for _ in range(5)]
    turns.append((order.assign(BUSY), BUSY))
    assert BUSY in served(order, turns, 2)
