"""Computed Retry-After values of refusals."""

from __future__ import annotations

from service.admission.reservation_store import LocalReservationStore
from service.admission.retry_after import Reservations

REQUEST_S = 0.05


def test_retry_times_of_refused_clients_follow_the_service_rate() -> None:
    reservations = Reservations()
    asked_at = [100.0 + number * 0.005 for number in range(400)]
    back_at = sorted(now + reservations.reserve(now, 0.0, REQUEST_S, now) for now in asked_at)
    assert back_at[0] <= 102.1
    assert 300 * REQUEST_S < back_at[-1] - back_at[0] < 800 * REQUEST_S
    for begin in range(102, int(back_at[-1]) - 3):
        assert sum(begin <= at < begin + 3 for at in back_at) <= 1.2 * 3 / REQUEST_S, "they come in waves"


def test_a_reservation_is_redeemed_once() -> None:
    reservations = Reservations()
    retry_after_s = reservations.reserve("a", 3.2, REQUEST_S, now=100.0)
    assert retry_after_s == 4
    assert not reservations.redeem("a", 102.0), "too soon"
    assert not reservations.redeem("b", 104.0), "another"
    assert reservations.expected_returns(104.0) > 0
    assert reservations.redeem("a", 104.0)
    assert reservations.return_rate == 1.0
    assert reservations.expected_returns(104.0) == 0
    assert not reservations.redeem("a", 104.0), "a second time"


def test_a_retry_that_is_too_early_keeps_its_reservation() -> None:
    reservations = Reservations()
    first = reservations.reserve("a", 10.0, REQUEST_S, now=100.0)
    assert reservations.reserve("a", 10.0, REQUEST_S, now=104.0) == first - 4
    assert reservations.expected_returns(110.0) == 1


def test_a_client_that_is_refused_again_when_it_returns_is_expected_once() -> None:
    reservations = Reservations()
    assert reservations.reserve("a", 1.0, REQUEST_S, now=100.0) == 1
    assert reservations.reserve("a", 5.0, REQUEST_S, now=101.0) == 5
    assert [reservations.expected_returns(second) for second in (101.0, 106.0)] == [0, 1]


def test_an_expired_reservation_is_not_redeemed() -> None:
    reservations = Reservations()
    retry_after_s = reservations.reserve("a", 1.0, REQUEST_S, now=100.0)
    assert not reservations.redeem("a", 100.0 + retry_after_s + 60)


def test_fewer_redeemed_reservations_reserve_less_and_shorten_retry_times() -> None:
    reservations = Reservations()
    for number in range(400):
        reservations.reserve(number, 0.0, REQUEST_S, now=100.0 + number * 0.005)
    reservations.reserve("late", 0.0, REQUEST_S, now=200.0)
    assert reservations.return_rate < 0.05
    pauses = [
        reservations.reserve(("again", number), 0.0, REQUEST_S, now=300.0 + number * 0.005) for number in range(400)
    ]
    assert max(pauses) <= 4


def test_no_retry_after_is_longer_than_five_minutes() -> None:
    reservations = Reservations()
    assert max(reservations.reserve(number, 0.0, 30.0, now=100.0 + number * 0.1) for number in range(200)) <= 301


def test_expired_reservations_are_removed() -> None:
    store = LocalReservationStore()
    reservations = Reservations(store=store)
    for second in range(2000):
        reservations.reserve(second, 0.0, REQUEST_S, now=100.0 + second)
    assert len(store) < 50
    assert sum(store.expected_in_second(second) > 0 for second in range(3000)) < 50
