"""Reservations that front ends share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.admission.reservation_store import ReservationStore
from service.admission.retry_after import Reservations
from service.processes.shared.reservation_store import SharedReservationStore, memory_nbytes

FRONT_ENDS = 3
REQUEST_S = 0.05

Stores = list[SharedReservationStore]


@pytest.fixture
def memory() -> memoryview:
    return memoryview(bytearray(memory_nbytes(FRONT_ENDS)))


@pytest.fixture
def stores(memory: memoryview) -> Stores:
    return [SharedReservationStore(memory, index) for index in range(FRONT_ENDS)]


def test_a_reservation_of_one_front_end_is_known_to_all(stores: Stores) -> None:
    stores[0].add(("client", "a"), 107)
    assert [store.due_second(("client", "a")) for store in stores] == [107] * 3
    assert [store.due_second(("other", "a")) for store in stores] == [None] * 3
    assert [store.expected_in_second(107) for store in stores] == [1] * 3
    assert [store.expected_in_second(108) for store in stores] == [0] * 3


@pytest.mark.parametrize("where", range(FRONT_ENDS))
def test_a_reservation_redeemed_at_one_front_end_is_expected_at_none(stores: Stores, where: int) -> None:
    stores[0].add("a", 107)
    stores[1].add("b", 107)
    stores[where].remove("a")
    assert [store.due_second("a") for store in stores] == [None] * 3
    assert [store.expected_in_second(107) for store in stores] == [1] * 3


def test_only_reservations_redeemed_nowhere_count_as_missed(stores: Stores) -> None:
    for who in "abc":
        stores[0].add(who, 107)
    stores[0].remove("a")
    stores[1].remove("b")
    assert stores[0].expire(before=107) == 0
    assert stores[0].expire(before=108) == 1
    assert stores[0].expire(before=108) == 0
    assert stores[2].due_second("c") is None


def test_taking_what_another_has_just_taken_changes_nothing(stores: Stores) -> None:
    stores[0].add("a", 107)
    stores[0].add("b", 107)
    stores[1].remove("a")
    stores[2].remove("a")
    stores[0].remove("a")
    assert stores[0].expected_in_second(107) == 1


def test_a_front_end_that_is_started_again_knows_what_its_predecessor_promised(memory: memoryview) -> None:
    SharedReservationStore(memory, 0).add("a", 107)
    successor = SharedReservationStore(memory, 0)
    assert successor.due_second("a") == 107
    successor.remove("a")
    assert successor.expected_in_second(107) == 0


def test_a_later_second_reuses_the_cell_of_a_past_one(stores: Stores) -> None:
    stores[0].add("a", 107)
    stores[0].add("b", 107 + 512)
    assert stores[1].expected_in_second(107 + 512) == 1
    assert stores[1].expected_in_second(107) == 0


def test_nearly_all_of_many_reservations_are_kept(stores: Stores) -> None:
    for number in range(20_000):
        stores[0].add(number, 107 + number % 200)
    known = sum(stores[1].due_second(number) == 107 + number % 200 for number in range(20_000))
    assert known > 19_900


@pytest.fixture(params=["one process", "several"])
def store(request: pytest.FixtureRequest, stores: Stores) -> Callable[[], ReservationStore]:
    return lambda: stores[1] if request.param == "several" else Reservations().store


def test_a_shared_store_is_a_store(store: Callable[[], ReservationStore]) -> None:
    one = store()
    for number in range(50):
        one.add(number, 100 + number // 10)
    one.remove(3)
    one.remove(49)
    assert one.due_second(3) is None
    assert one.due_second(48) == 104
    assert [one.expected_in_second(second) for second in range(99, 106)] == [0, 9, 10, 10, 10, 9, 0]
    assert one.expire(before=102) == 19
    assert one.due_second(11) is None
    assert one.due_second(20) == 102


def test_a_request_refused_by_one_front_end_is_admitted_by_another_once(stores: Stores) -> None:
    first, second, third = (Reservations(store=store) for store in stores)
    pause_s = first.reserve("a", 3.2, REQUEST_S, now=100.0)
    assert not second.redeem("a", 102.0), "too soon"
    assert second.expected_returns(103.9) == third.expected_returns(103.9) == 1
    assert second.redeem("a", 100.0 + pause_s)
    assert not third.redeem("a", 100.0 + pause_s), "a second time"
    assert not first.redeem("a", 100.0 + pause_s), "a second time"
    assert first.expected_returns(103.9) == 0


def test_a_retry_at_another_front_end_that_comes_too_early_keeps_its_reservation(stores: Stores) -> None:
    first, second, _ = (Reservations(store=store) for store in stores)
    pause_s = first.reserve("a", 10.0, REQUEST_S, now=100.0)
    assert second.reserve("a", 10.0, REQUEST_S, now=104.0) == pause_s - 4
    assert second.expected_returns(110.0) == 1


def test_a_retry_at_another_front_end_that_comes_much_later_has_no_reservation(stores: Stores) -> None:
    first, second, _ = (Reservations(store=store) for store in stores)
    pause_s = first.reserve("a", 1.0, REQUEST_S, now=100.0)
    assert not second.redeem("a", 100.0 + pause_s + 60)
