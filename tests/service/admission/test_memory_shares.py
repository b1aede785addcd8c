"""Who may hold decoded pictures, who waits for how long, and who waits in vain."""

from __future__ import annotations

import math

import pytest

from service.admission.memory_shares import Claim, Late, Shares, Ticket
from service.core.flow import Flow

TOTAL, KEPT = 800, 100
BUSY, QUIET = Flow("busy"), Flow("quiet")


def large(nbytes: int = 600, flow: Flow = BUSY, deadline: float = math.inf, allowed_s: float = math.inf) -> Claim:
    return Claim(nbytes, flow, large=True, deadline=deadline, allowed_s=allowed_s)


def small(nbytes: int = 10, flow: Flow = QUIET, deadline: float = math.inf) -> Claim:
    return Claim(nbytes, flow, deadline=deadline)


def begun(shares: Shares, *claims: Claim, now: float = 0.0) -> list[bool]:
    """Whether each of those that ask in this order has its share at once."""
    got = []
    for claim in claims:
        ticket = shares.ask(claim)
        got.append(ticket in shares.settle(now)[0])
    return got


def taught(hold_s: float = 10.0, nbytes: int = 600) -> tuple[Shares, Ticket, float]:
    """Books that know how long a large share is held, one that has just begun, and the time."""
    shares = Shares(TOTAL)
    first = shares.ask(large(nbytes))
    shares.settle(0.0)
    second = shares.ask(large(nbytes))
    shares.give_back(first, hold_s)
    assert shares.settle(hold_s) == ([second], [])
    return shares, second, hold_s


@pytest.mark.parametrize(
    ("claims", "at_once"),
    [
        ([small(400), small(400)], [True, True]),
        ([small(400), small(401)], [True, False]),
        ([large(350), large(350)], [True, True]),
        ([large(350), large(351)], [True, False]),
        ([large(), large(), small(KEPT)], [True, False, True]),
        ([large(), large(), small(150), small(50), small(1)], [True, False, True, True, False]),
        ([large(300), small(200), large(350), small(1)], [True, True, False, False]),
        ([large(700), small(60), small(40), small(1)], [True, True, True, False]),
        ([large(600), small(150), small(50), small(1)], [True, True, True, False]),
        ([large(600), large(1), small(150), small(50)], [True, True, True, False]),
        ([small(101), large(700)], [True, False]),
        ([small(100), large(700)], [True, True]),
        ([large(9999), small(9999)], [True, True]),
        ([small(9999), small(1)], [True, False]),
        ([small(101), large(700), small(1), small(1)], [True, False, False, False]),
        ([small(90), large(700), large(), small(10), small(1)], [True, True, False, True, False]),
    ],
)
def test_large_pictures_leave_room_for_small_ones_and_small_ones_do_not_keep_large_ones_out(
    claims: list[Claim], at_once: list[bool]
) -> None:
    assert begun(Shares(TOTAL), *claims) == at_once


def test_a_lone_large_picture_comes_before_the_hundreds_of_another_client() -> None:
    shares = Shares(TOTAL)
    first = shares.ask(large())
    shares.settle(0.0)
    for _ in range(200):
        shares.ask(large())
    lone = shares.ask(large(flow=QUIET))
    shares.give_back(first, 1.0)
    second = shares.settle(1.0)[0]
    if lone not in second:
        shares.give_back(second[0], 2.0)
        assert shares.settle(2.0)[0] == [lone]


def test_clients_share_bytes_and_not_requests() -> None:
    shares = Shares(TOTAL)
    holding = shares.ask(large(700))
    shares.settle(0.0)
    for _ in range(20):
        shares.ask(large(700, BUSY))
    for _ in range(20):
        shares.ask(large(350, QUIET))
    held = {BUSY: 0, QUIET: 0}
    holders = [holding]
    for now in range(1, 13):
        shares.give_back(holders.pop(0), float(now))
        holders += (came := shares.settle(float(now))[0])
        for ticket in came:
            held[ticket.claim.flow] += ticket.nbytes
    assert held[BUSY] == pytest.approx(held[QUIET], abs=700)


def test_small_ones_that_pass_do_not_cost_a_waiting_client_its_turn() -> None:
    shares = Shares(TOTAL)
    first = shares.ask(large())
    shares.settle(0.0)
    for _ in range(3):
        shares.ask(large())
    for _ in range(50):
        passing = shares.ask(small(50, BUSY))
        assert shares.settle(0.0)[0] == [passing]
        shares.give_back(passing, 0.0)
    lone = shares.ask(large(flow=QUIET))
    shares.give_back(first, 1.0)
    assert shares.settle(1.0)[0] == [lone]


def test_who_is_withdrawn_costs_its_client_nothing() -> None:
    shares = Shares(TOTAL)
    first = shares.ask(large())
    shares.settle(0.0)
    for gone in [shares.ask(large()) for _ in range(50)]:
        shares.withdraw(gone)
    came_back = shares.ask(large())
    for _ in range(10):
        shares.ask(large(flow=QUIET))
    order = []
    holder = first
    for now in range(1, 4):
        shares.give_back(holder, float(now))
        (holder,) = shares.settle(float(now))[0]
        order.append(holder)
    assert came_back in order


@pytest.mark.parametrize(
    ("waiting", "left_s", "late"),
    [
        (0, 20.5, False),  # ten until the share is free, ten with it
        (0, 19.5, True),
        (2, 40.5, False),
        (2, 39.5, True),
    ],
)
def test_who_would_be_answered_too_late_is_told_when_it_asks(waiting: int, left_s: float, late: bool) -> None:
    shares, _, now = taught()
    for _ in range(waiting):
        shares.ask(large())
    ticket = shares.ask(large(deadline=now + left_s))
    told = shares.settle(now)[1]
    assert [one.ticket for one in told] == ([ticket] if late else [])


def test_progress_of_what_is_held_counts() -> None:
    shares, _, now = taught()
    shares.ask(large(deadline=now + 9.0 + 11.5))
    assert shares.settle(now + 9.0)[1] == []


def test_what_is_held_side_by_side_is_given_back_side_by_side() -> None:
    shares, _, now = taught(nbytes=350)
    third = shares.ask(large(350))
    assert shares.settle(now)[0] == [third], "two are held"
    shares.ask(large(350, deadline=now + 15.5))
    assert shares.settle(now)[1] == [], "five until the next is free, ten with it"


def test_a_refusal_says_how_long_the_answer_would_take() -> None:
    shares, _, now = taught()
    ticket = shares.ask(large(deadline=now + 5.0, allowed_s=15.0))
    assert shares.settle(now)[1] == [Late(ticket, answer_s=20.0, left_s=5.0, pause_s=5.0)]


def test_those_that_are_refused_together_are_told_to_come_one_after_the_other() -> None:
    shares = Shares(TOTAL)
    first = shares.ask(large())
    shares.settle(0.0)
    for _ in range(6):
        shares.ask(large(deadline=30.0, allowed_s=30.0))
    shares.give_back(first, 10.0)
    came, late = shares.settle(10.0)
    assert (len(came), [one.pause_s for one in late]) == (1, [0.0, 10.0, 20.0, 30.0]), "one waits, and has time"


def test_those_that_wait_already_are_told_once_it_is_known_and_are_not_in_the_way() -> None:
    shares = Shares(TOTAL)
    first = shares.ask(large())
    shares.settle(0.0)
    waiting = [shares.ask(large(deadline=30.0 if number < 5 else 45.0)) for number in range(7)]
    assert shares.settle(0.0) == ([], []), "nothing is known"
    shares.give_back(first, 10.0)
    came, late = shares.settle(10.0)
    assert came == waiting[:1]
    assert [one.ticket for one in late] == [*waiting[2:5], waiting[6]], "the second ends at 30, the sixth at 40"


def test_one_that_cannot_be_finished_in_time_is_not_begun_while_others_wait() -> None:
    shares, holder, now = taught()
    doomed = shares.ask(large(deadline=now + 20.5))
    other = shares.ask(large())
    assert shares.settle(now)[1] == []
    shares.give_back(holder, now + 11.0)
    came, late = shares.settle(now + 11.0)
    assert ([one.ticket for one in late], came) == ([doomed], [other])


def test_the_last_of_a_queue_is_not_begun_in_vain_either() -> None:
    shares, holder, now = taught()
    doomed = shares.ask(large(deadline=now + 20.5))
    assert shares.settle(now) == ([], [])
    shares.give_back(holder, now + 11.0)
    came, late = shares.settle(now + 11.0)
    assert ([one.ticket for one in late], came) == ([doomed], [])


def test_one_that_is_alone_is_begun_whatever_was_learned() -> None:
    shares, holder, now = taught()
    shares.give_back(holder, now + 10.0)
    ticket = shares.ask(large(deadline=now + 11.0))
    assert shares.settle(now + 10.0) == ([ticket], [])


def test_nothing_is_learned_from_one_that_was_given_up() -> None:
    shares, holder, now = taught()
    shares.give_back(holder, now + 1000.0, finished=False)
    shares.ask(large())
    ticket = shares.ask(large(deadline=now + 1020.5))
    came, late = shares.settle(now + 1000.0)
    assert (len(came), late, ticket.begun_at) == (1, [], 0.0)


def test_large_ones_teach_nothing_about_small_ones() -> None:
    shares, _, now = taught()
    shares.ask(large())
    assert begun(shares, small(150), small(50), now=now) == [True, True]
    shares.ask(small(10, deadline=now + 0.1))
    assert shares.settle(now) == ([], [])
