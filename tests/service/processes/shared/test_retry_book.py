"""Front ends that know of each other's appointments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.admission.retry_after import Reservations
from service.admission.retry_book import RetryBook
from service.processes.shared.retry_book import SharedRetryBook, nbytes

FRONT_ENDS = 3
REQUEST_S = 0.05

Books = list[SharedRetryBook]


@pytest.fixture
def memory() -> memoryview:
    return memoryview(bytearray(nbytes(FRONT_ENDS)))


@pytest.fixture
def books(memory: memoryview) -> Books:
    return [SharedRetryBook(memory, index) for index in range(FRONT_ENDS)]


def test_who_was_told_by_one_is_known_to_all(books: Books) -> None:
    books[0].add(("client", "a"), 107)
    assert [book.due(("client", "a")) for book in books] == [107] * 3
    assert [book.due(("other", "a")) for book in books] == [None] * 3
    assert [book.expected(107) for book in books] == [1] * 3
    assert [book.expected(108) for book in books] == [0] * 3


@pytest.mark.parametrize("where", range(FRONT_ENDS))
def test_who_has_come_anywhere_is_expected_nowhere(books: Books, where: int) -> None:
    books[0].add("a", 107)
    books[1].add("b", 107)
    books[where].remove("a")
    assert [book.due("a") for book in books] == [None] * 3
    assert [book.expected(107) for book in books] == [1] * 3


def test_only_those_who_came_nowhere_have_not_come(books: Books) -> None:
    for who in "abc":
        books[0].add(who, 107)
    books[0].remove("a")
    books[1].remove("b")
    assert books[0].expire(before=107) == 0
    assert books[0].expire(before=108) == 1
    assert books[0].expire(before=108) == 0
    assert books[2].due("c") is None


def test_taking_what_another_has_just_taken_changes_nothing(books: Books) -> None:
    books[0].add("a", 107)
    books[0].add("b", 107)
    books[1].remove("a")
    books[2].remove("a")
    books[0].remove("a")
    assert books[0].expected(107) == 1


def test_a_front_end_that_is_started_again_knows_what_its_predecessor_promised(memory: memoryview) -> None:
    SharedRetryBook(memory, 0).add("a", 107)
    successor = SharedRetryBook(memory, 0)
    assert successor.due("a") == 107
    successor.remove("a")
    assert successor.expected(107) == 0


def test_a_later_second_takes_the_place_of_one_that_is_long_past(books: Books) -> None:
    books[0].add("a", 107)
    books[0].add("b", 107 + 512)
    assert books[1].expected(107 + 512) == 1
    assert books[1].expected(107) == 0


def test_nearly_everyone_of_a_crowd_is_remembered(books: Books) -> None:
    for number in range(20_000):
        books[0].add(number, 107 + number % 200)
    known = sum(books[1].due(number) == 107 + number % 200 for number in range(20_000))
    assert known > 19_900


@pytest.fixture(params=["one process", "several"])
def book(request: pytest.FixtureRequest, books: Books) -> Callable[[], RetryBook]:
    return lambda: books[1] if request.param == "several" else Reservations().book


def test_a_shared_book_is_a_book(book: Callable[[], RetryBook]) -> None:
    one = book()
    for number in range(50):
        one.add(number, 100 + number // 10)
    one.remove(3)
    one.remove(49)
    assert one.due(3) is None
    assert one.due(48) == 104
    assert [one.expected(second) for second in range(99, 106)] == [0, 9, 10, 10, 10, 9, 0]
    assert one.expire(before=102) == 19
    assert one.due(11) is None
    assert one.due(20) == 102


def test_who_was_refused_by_one_front_end_is_let_in_by_another_once(books: Books) -> None:
    first, second, third = (Reservations(book=book) for book in books)
    pause_s = first.reserve("a", 3.2, REQUEST_S, now=100.0)
    assert not second.redeem("a", 102.0), "too soon"
    assert second.expected(103.9) == third.expected(103.9) == 1
    assert second.redeem("a", 100.0 + pause_s)
    assert not third.redeem("a", 100.0 + pause_s), "a second time"
    assert not first.redeem("a", 100.0 + pause_s), "a second time"
    assert first.expected(103.9) == 0


def test_asking_another_front_end_too_soon_keeps_the_moment(books: Books) -> None:
    first, second, _ = (Reservations(book=book) for book in books)
    pause_s = first.reserve("a", 10.0, REQUEST_S, now=100.0)
    assert second.reserve("a", 10.0, REQUEST_S, now=104.0) == pause_s - 4
    assert second.expected(110.0) == 1


def test_who_comes_to_another_front_end_much_later_is_a_newcomer(books: Books) -> None:
    first, second, _ = (Reservations(book=book) for book in books)
    pause_s = first.reserve("a", 1.0, REQUEST_S, now=100.0)
    assert not second.redeem("a", 100.0 + pause_s + 60)
