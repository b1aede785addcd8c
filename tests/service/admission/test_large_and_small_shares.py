"""Which requests may hold decoded pictures, how long others wait, and which are refused."""

from __future__ import annotations

import math

import pytest

from service.admission.large_and_small_shares import Claim, LateClaim, MemoryShares, QueuedClaim
from service.core.flow import Flow

TOTAL, RESERVED = 800, 100
BUSY, QUIET = Flow("busy"), Flow("quiet")


def large(nbytes: int = 600, flow: Flow = BUSY, deadline: float = math.inf, allowed_s: float = math.inf) -> Claim:
    return Claim(nbytes, flow, large=True, deadline=deadline, allowed_s=allowed_s)


def small(nbytes: int = 10, flow: Flow = QUIET, deadline: float = math.inf) -> Claim:
    return Claim(nbytes, flow, deadline=deadline)


def granted(shares: MemoryShares, *claims: Claim, now: float = 0.0) -> list[bool]:
    """Add claims in this order; returns for each whether it has its share at once."""
    got = []
    for claim in claims:
        queued = shares.add(claim)
        got.append(queued in shares.update(now)[0])
    return got


def measured_shares(hold_s: float = 10.0, nbytes: int = 600) -> tuple[MemoryShares, QueuedClaim, float]:
    """Return shares that have learned for how long a large one is held, a large one granted just now, and the time."""
    shares = MemoryShares(TOTAL)
    first = shares.add(large(nbytes))
    shares.update(0.0)
    second = shares.add(large(nbytes))
    shares.release(first, hold_s)
    assert shares.update(hold_s) == ([second], [])
    return shares, second, hold_s


@pytest.mark.parametrize(
    ("claims", "at_once"),
    [
        ([small(400), small(400)], [True, True]),
        ([small(400), small(401)], [True, False]),
        ([large(350), large(350)], [True, True]),
        ([large(350), large(351)], [True, False]),
        ([large(), large(), small(RESERVED)], [True, False, True]),
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
def test_large_and_small_pictures_do_not_starve_each_other(claims: list[Claim], at_once: list[bool]) -> None:
    assert granted(MemoryShares(TOTAL), *claims) == at_once


def test_a_single_large_picture_is_served_before_hundreds_of_another_client() -> None:
    shares = MemoryShares(TOTAL)
    first = shares.add(large())
    shares.update(0.0)
    for _ in range(200):
        shares.add(large())
    lone = shares.add(large(flow=QUIET))
    shares.release(first, 1.0)
    second = shares.update(1.0)[0]
    if lone not in second:
        shares.release(second[0], 2.0)
        assert shares.update(2.0)[0] == [lone]


def test_clients_share_bytes_and_not_requests() -> None:
    shares = MemoryShares(TOTAL)
    holding = shares.add(large(700))
    shares.update(0.0)
    for _ in range(20):
        shares.add(large(700, BUSY))
    for _ in range(20):
        shares.add(large(350, QUIET))
    held = {BUSY: 0, QUIET: 0}
    holders = [holding]
    for now in range(1, 13):
        shares.release(holders.pop(0), float(now))
        holders += (came := shares.update(float(now))[0])
        for queued in came:
            held[queued.claim.flow] += queued.nbytes
    assert held[BUSY] == pytest.approx(held[QUIET], abs=700)


def test_overtaking_small_pictures_do_not_cost_a_waiting_client_its_turn() -> None:
    shares = MemoryShares(TOTAL)
    first = shares.add(large())
    shares.update(0.0)
    for _ in range(3):
        shares.add(large())
    for _ in range(50):
        passing = shares.add(small(50, BUSY))
        assert shares.update(0.0)[0] == [passing]
        shares.release(passing, 0.0)
    lone = shares.add(large(flow=QUIET))
    shares.release(first, 1.0)
    assert shares.update(1.0)[0] == [lone]


def test_a_withdrawn_claim_costs_its_client_nothing() -> None:
    shares = MemoryShares(TOTAL)
    first = shares.add(large())
    shares.update(0.0)
    for gone in [shares.add(large()) for _ in range(50)]:
        shares.withdraw(gone)
    came_back = shares.add(large())
    for _ in range(10):
        shares.add(large(flow=QUIET))
    order = []
    holder = first
    for now in range(1, 4):
        shares.release(holder, float(now))
        (holder,) = shares.update(float(now))[0]
        order.append(holder)
    assert came_back in order


@pytest.mark.parametrize(
    ("waiting", "left_s", "late"),
    [
        (0, 20.5, False),  # 10 s until the share is free, 10 s of work with it
        (0, 19.5, True),
        (2, 40.5, False),
        (2, 39.5, True),
    ],
)
def test_a_claim_that_would_be_late_is_refused_at_once(waiting: int, left_s: float, late: bool) -> None:
    shares, _, now = measured_shares()
    for _ in range(waiting):
        shares.add(large())
    queued = shares.add(large(deadline=now + left_s))
    refusals_of = shares.update(now)[1]
    assert [one.queued for one in refusals_of] == ([queued] if late else [])


def test_the_age_of_granted_shares_counts_in_the_prediction() -> None:
    shares, _, now = measured_shares()
    shares.add(large(deadline=now + 9.0 + 11.5))
    assert shares.update(now + 9.0)[1] == []


def test_shares_held_in_parallel_are_predicted_to_be_released_in_parallel() -> None:
    shares, _, now = measured_shares(nbytes=350)
    third = shares.add(large(350))
    assert shares.update(now)[0] == [third], "two are held"
    shares.add(large(350, deadline=now + 15.5))
    assert shares.update(now)[1] == [], "five until the next is free, ten with it"


def test_a_refusal_has_the_predicted_time_of_the_answer() -> None:
    shares, _, now = measured_shares()
    queued = shares.add(large(deadline=now + 5.0, allowed_s=15.0))
    assert shares.update(now)[1] == [LateClaim(queued, answer_s=20.0, left_s=5.0, retry_after_s=5.0)]


def test_claims_refused_together_get_successive_retry_times() -> None:
    shares = MemoryShares(TOTAL)
    first = shares.add(large())
    shares.update(0.0)
    for _ in range(6):
        shares.add(large(deadline=30.0, allowed_s=30.0))
    shares.release(first, 10.0)
    came, late = shares.update(10.0)
    assert (len(came), [one.retry_after_s for one in late]) == (1, [0.0, 10.0, 20.0, 30.0]), "one waits, and has time"


def test_waiting_claims_that_become_late_are_refused_and_block_no_others() -> None:
    shares = MemoryShares(TOTAL)
    first = shares.add(large())
    shares.update(0.0)
    waiting = [shares.add(large(deadline=30.0 if number < 5 else 45.0)) for number in range(7)]
    assert shares.update(0.0) == ([], []), "nothing is known"
    shares.release(first, 10.0)
    came, late = shares.update(10.0)
    assert came == waiting[:1]
    assert [one.queued for one in late] == [*waiting[2:5], waiting[6]], "the second ends at 30, the sixth at 40"


def test_a_claim_that_cannot_finish_in_time_is_not_granted_while_others_wait() -> None:
    shares, holder, now = measured_shares()
    doomed = shares.add(large(deadline=now + 20.5))
    other = shares.add(large())
    assert shares.update(now)[1] == []
    shares.release(holder, now + 11.0)
    came, late = shares.update(now + 11.0)
    assert ([one.queued for one in late], came) == ([doomed], [other])


def test_the_last_claim_of_a_queue_is_not_granted_in_vain_either() -> None:
    shares, holder, now = measured_shares()
    doomed = shares.add(large(deadline=now + 20.5))
    assert shares.update(now) == ([], [])
    shares.release(holder, now + 11.0)
    came, late = shares.update(now + 11.0)
    assert ([one.queued for one in late], came) == ([doomed], [])


def test_a_claim_that_is_alone_is_granted_whatever_the_prediction() -> None:
    shares, holder, now = measured_shares()
    shares.release(holder, now + 10.0)
    queued = shares.add(large(deadline=now + 11.0))
    assert shares.update(now + 10.0) == ([queued], [])


def test_nothing_is_learned_from_an_abandoned_share() -> None:
    shares, holder, now = measured_shares()
    shares.release(holder, now + 1000.0, finished=False)
    shares.add(large())
    queued = shares.add(large(deadline=now + 1020.5))
    came, late = shares.update(now + 1000.0)
    assert (len(came), late, queued.granted_at) == (1, [], 0.0)


def test_large_pictures_do_not_change_the_prediction_for_small_ones() -> None:
    shares, _, now = measured_shares()
    shares.add(large())
    assert granted(shares, small(150), small(50), now=now) == [True, True]
    shares.add(small(10, deadline=now + 0.1))
    assert shares.update(now) == ([], [])


@pytest.mark.parametrize(("left_s", "at_once"), [(9.5, False), (10.5, True)])
def test_a_claim_that_fits_but_would_be_late_is_not_granted_at_once(left_s: float, at_once: bool) -> None:
    shares, _, now = measured_shares(nbytes=350)
    assert (shares.grant_at_once(large(350, deadline=now + left_s), now) is not None) == at_once


def test_a_claim_behind_one_that_is_too_large_and_late_is_granted_with_its_refusal() -> None:
    shares, _, now = measured_shares(nbytes=350)
    doomed, next_one = shares.add(large(400, deadline=now + 15.0)), shares.add(large(350))
    came, late = shares.update(now)
    assert ([one.queued for one in late], came) == ([doomed], [next_one])
